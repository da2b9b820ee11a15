"""`python -m bench_runner`."""

from bench_runner.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
