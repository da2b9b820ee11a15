"""Pure parts of the role's modules: standard library only, Python 3.9 and newer."""
