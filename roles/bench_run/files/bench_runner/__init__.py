"""The benchmark runner: measures a campaign's cells on one node and leaves files that can be trusted."""

__version__ = "0.1.0"

# Part of a cell's identity: raise it when the same plan would be measured differently; cells then run again.
# 1: completions route, one warm-up request, tokens by usage, stamps at the read.
MEASURING_VERSION = 1
