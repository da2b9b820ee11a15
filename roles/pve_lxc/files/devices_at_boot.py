#!/usr/bin/python3
"""Run by recover-and-bench-devices.service before Proxmox starts its containers."""

import sys
from pathlib import Path

from pve_lxc.boot import main

if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
