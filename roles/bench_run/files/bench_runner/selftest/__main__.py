"""`python -m bench_runner.selftest`: how far this machine's figures hold, in a minute."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench_runner.loops import run_in_loop
from bench_runner.selftest.report import REPEATS, selftest, table, write


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench_runner selftest", description=__doc__)
    parser.add_argument("--json", type=Path, help="write the whole result there")
    parser.add_argument("--quick", action="store_true", help="each load once instead of three times")
    options = parser.parse_args()
    found = selftest(run_in_loop, repeats=1 if options.quick else REPEATS)
    print(table(found))  # noqa: T201 - this is the command line
    if options.json:
        write(found, options.json)
    return 0 if all(line.certified for line in found.lines) else 1


if __name__ == "__main__":
    sys.exit(main())
