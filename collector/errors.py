"""What can go wrong, one sentence each."""

from __future__ import annotations


class CollectorError(Exception):
    """Base of everything the collector says to an operator."""


class NoResultsError(CollectorError):
    """There is nothing to read where results were expected."""


class FetchError(CollectorError):
    """The playbook that fetches results could not do its work."""


class BusyError(CollectorError):
    """Another collector is writing to the same results folder."""
