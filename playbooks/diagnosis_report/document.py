"""diagnosis.json: the diagnoses of all nodes, and those that have none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

SCHEMA = "recover-and-bench/diagnoses"
SCHEMA_VERSION = 1
# The worst one counts; a node without a diagnosis is worse than any.
WORST_LAST = ("healthy", "repairable", "needs_person", "unknown")
NO_DIAGNOSIS = "it has no diagnosis: its probe failed or was not reached, see the messages above"

Diagnosis = Mapping[str, Any]


def sort_out(
    nodes: Sequence[str], found: Mapping[str, Diagnosis | None]
) -> tuple[list[Diagnosis], list[dict[str, str]]]:
    """Diagnoses in the inventory's order, and `{node, why}` for each node without one."""
    diagnoses = [diagnosis for node in nodes if (diagnosis := found.get(node))]
    missing = [{"node": node, "why": NO_DIAGNOSIS} for node in nodes if not found.get(node)]
    return diagnoses, missing


def document(
    diagnoses: Sequence[Diagnosis], missing: Sequence[Mapping[str, str]], *, made_at: str
) -> dict[str, Any]:
    """The content of diagnosis.json (collector/schemas/diagnoses.schema.json)."""
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "made_at": made_at,
        "verdict": worst(diagnoses, missing),
        "nodes": list(diagnoses),
        "missing": list(missing),
    }


def worst(diagnoses: Sequence[Diagnosis], missing: Sequence[Mapping[str, str]]) -> str:
    verdicts = [str(diagnosis.get("verdict")) for diagnosis in diagnoses] + ["unknown" for _ in missing]
    return max(verdicts, key=_rank, default="unknown")


def _rank(verdict: str) -> int:
    return WORST_LAST.index(verdict) if verdict in WORST_LAST else len(WORST_LAST)


def one_line(diagnoses: Sequence[Diagnosis], missing: Sequence[Mapping[str, str]]) -> str:
    """'1 of 3 nodes healthy; repairable: ct200; needs a person: ct201'."""
    by: dict[str, list[str]] = {verdict: [] for verdict in WORST_LAST}
    for diagnosis in diagnoses:
        by.setdefault(str(diagnosis.get("verdict")), []).append(str(diagnosis.get("node")))
    by["unknown"] += [one["node"] for one in missing]
    count = len(diagnoses) + len(missing)
    parts = [f"{len(by['healthy'])} of {count} node{'' if count == 1 else 's'} healthy"]
    words = {"needs_person": "needs a person", "unknown": "no diagnosis"}
    parts += [
        f"{words.get(verdict, verdict)}: {', '.join(names)}"
        for verdict, names in by.items()
        if names and verdict != "healthy"
    ]
    return "; ".join(parts)
