"""A diagnosis in an operator's words: one line, entries for recovery.json, and a proof.

Pure; runs on the controller.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .change_words import one_line
from .evidence import records, text

MOST_SUMMARY_CAUSES = 3


def summary(diagnosis: Mapping[str, Any]) -> str:
    """The node's line: the verdict, and the sentences of what is wrong."""
    causes = records(diagnosis, "causes")
    wrong = [cause for cause in causes if text(cause, "severity") != "note"]
    told = wrong or [cause for cause in causes if text(cause, "name") == "ok"]
    sentences = " ".join(text(cause, "sentence") or "" for cause in told[:MOST_SUMMARY_CAUSES])
    more = len(wrong) - MOST_SUMMARY_CAUSES
    changed = one_line(records(diagnosis, "changes"))
    parts = [
        f"{(text(diagnosis, 'verdict') or '').replace('_', ' ')}: {sentences}",
        f"({more} more.)" if more > 0 else "",
        f"Changed since the snapshot: {changed}." if changed else "",
    ]
    return " ".join(part for part in parts if part)


def recovery_entry(diagnosis: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """For recovery.json, whose lists grow: only causes that an earlier probe of this run did not name."""
    before = {(text(cause, "name"), text(cause, "sentence")) for cause in records(known, "causes")}
    fresh = [
        {key: cause.get(key) for key in ("name", "severity", "sentence", "repair")}
        | {"seen_at": text(diagnosis, "probed_at")}
        for cause in records(diagnosis, "causes")
        if text(cause, "name") != "ok" and (text(cause, "name"), text(cause, "sentence")) not in before
    ]
    return {
        "verdict": text(diagnosis, "verdict"),
        "probed_at": text(diagnosis, "probed_at"),
        "causes": fresh,
        "changes": list(records(diagnosis, "changes")),
    }


def proof_words(proof: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{key}={_value(value)}" for key, value in proof.items() if value not in (None, [], {}, "")
    )


def _value(value: Any) -> str:  # noqa: ANN401 - evidence of any type
    if isinstance(value, Mapping):
        return (
            "{"
            + ", ".join(f"{key} {_value(one)}" for key, one in value.items() if one not in (None, ""))
            + "}"
        )
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_value(one) for one in value) + "]"
    return str(value)
