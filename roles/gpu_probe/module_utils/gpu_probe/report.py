"""A diagnosis in an operator's words: one line, entries for recovery.json, and the table of diagnose.yml.

Pure; runs on the controller.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from .change_words import one_line
from .evidence import mapping, records, text

MOST_SUMMARY_CAUSES = 3
TABLE_WIDTH = 118


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


def table(diagnoses: Iterable[Mapping[str, Any]]) -> str:
    """Node, verdict, cause, proof, repair: one block a cause, readable on a terminal of 120 columns."""
    lines = []
    for diagnosis in diagnoses:
        head = f"{text(diagnosis, 'node')} on {text(diagnosis, 'host')}"
        lines.append(f"{head:<28} {(text(diagnosis, 'verdict') or '').replace('_', ' ')}")
        for cause in records(diagnosis, "causes"):
            lines.append(f"  {text(cause, 'name')} ({(text(cause, 'severity') or '').replace('_', ' ')})")
            lines += _field("cause", text(cause, "sentence") or "")
            lines += _field("proof", proof_words(mapping(cause, "proof")))
            if text(cause, "severity") != "note" or text(cause, "repair"):
                lines += _field("repair", text(cause, "repair") or "by a person, as the sentence says")
        unseen = records(diagnosis, "unseen")
        if unseen:
            listed = "; ".join(f"{text(one, 'what')} ({text(one, 'why')})" for one in unseen)
            lines += _field("unseen", listed)
        for change in records(diagnosis, "changes"):
            words = f"{text(change, 'what')}: {_value(change.get('before'))} → {_value(change.get('after'))}"
            lines += _field("changed", words)
        lines.append("")
    return "\n".join(lines).rstrip()


def _field(label: str, words: str) -> list[str]:
    indent = " " * 13
    return (
        textwrap.wrap(words, TABLE_WIDTH, initial_indent=f"    {label:<8} ", subsequent_indent=indent) or []
    )


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
