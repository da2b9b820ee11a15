"""`python3 -m model_stager`."""

import sys

from model_stager.cli import main

if __name__ == "__main__":
    sys.exit(main())
