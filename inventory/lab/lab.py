#!/usr/bin/env python3
"""The running lab as an Ansible inventory (one host and one node when none is up)."""

import json
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.lab.inventory import running_inventory  # noqa: E402 (found by the path set above)

json.dump(running_inventory(), sys.stdout, indent=1)
