"""Errors that the lab reports in one sentence, without a traceback."""


class LabError(Exception):
    """What was found, what was needed, and what to do about it."""
