"""From evidence to named causes: the table's functions, minus the consequences, and one verdict.

Pure; runs on the controller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .case import Case
from .cause import LADDER, NEEDS_PERSON, NOTE, REPAIRABLE, Cause, Finding
from .causes import TABLE
from .evidence import mapping, number, records, text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SCHEMA = "recover-and-bench/diagnosis"
SCHEMA_VERSION = 1
HEALTHY = "healthy"


def diagnose(  # noqa: PLR0913 - the facts of one node, each by name
    *,
    node: str,
    host: str,
    vmid: int,
    link: Mapping[str, Any],
    host_evidence: Mapping[str, Any] | None,
    node_evidence: Mapping[str, Any] | None,
    expected_gpus: int = 0,
    host_gpus: int = 0,
    model_bytes: int = 0,
    probed_at: str = "",
) -> dict[str, Any]:
    """The whole diagnosis (collector/schemas/diagnosis.schema.json). Never fails on odd evidence."""
    case = Case(
        node=node,
        host_name=host,
        vmid=vmid,
        link=mapping(link),
        host=mapping(host_evidence),
        inside=mapping(node_evidence),
        expected_gpus=expected_gpus,
        host_gpus=host_gpus,
        model_bytes=model_bytes,
    )
    found = [(row, finding) for row in TABLE for finding in row.find(case)]
    listed = [_entry(row, finding) for row, finding in _without_consequences(found)]
    listed.sort(key=_by_urgency)
    verdict = _verdict(listed)
    if verdict == HEALTHY:
        listed.insert(0, _ok(case))
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "node": node,
        "host": host,
        "vmid": vmid,
        "probed_at": probed_at,
        "verdict": verdict,
        "link": dict(case.link),
        "causes": listed,
        "unseen": [*_blind(case.host, "host"), *_blind(case.inside, "node"), *case.unseen],
        "host_evidence": dict(case.host),
        "node_evidence": dict(case.inside),
    }


def _without_consequences(found: list[tuple[Cause, Finding]]) -> Iterable[tuple[Cause, Finding]]:
    """Drop what another cause explains; a note explains nothing."""
    explainers = [row for row, finding in found if (finding.severity or row.severity) != NOTE]
    for row, finding in found:
        if not any(row.name in other.explains for other in explainers if other.name != row.name):
            yield row, finding


def _entry(row: Cause, finding: Finding) -> dict[str, Any]:
    # What has become a mere note in this case needs no repair.
    repair = None if finding.severity == NOTE else row.repair if finding.repair == "" else finding.repair
    return {
        "name": row.name,
        "severity": finding.severity or row.severity,
        "sentence": finding.sentence,
        "proof": dict(finding.proof),
        "repair": repair,
    }


_URGENCY = {NEEDS_PERSON: 0, REPAIRABLE: 0, NOTE: 1}


def _by_urgency(entry: Mapping[str, Any]) -> int:
    """Notes last; the rest stays in the table's order."""
    return _URGENCY[entry["severity"]]


def _verdict(listed: list[dict[str, Any]]) -> str:
    severities = {entry["severity"] for entry in listed}
    return NEEDS_PERSON if NEEDS_PERSON in severities else REPAIRABLE if REPAIRABLE in severities else HEALTHY


def _ok(case: Case) -> dict[str, Any]:
    count = number(case.inside, "cuda", "device_count")
    version = text(case.host, "driver", "version") or text(case.inside, "module_version")
    return {
        "name": "ok",
        "severity": NOTE,
        "sentence": f"{case.node}: cuInit(0) is 0, {count if count is not None else 'some'} GPU"
        f"{'' if count == 1 else 's'}" + (f", driver {version}." if version else "."),
        "proof": {"cu_init": case.cu_init, "device_count": count, "driver": version},
        "repair": None,
    }


def _blind(tree: Mapping[str, Any], where: str) -> list[dict[str, str]]:
    return [
        {"what": f"{where}: {text(entry, 'what')}", "why": text(entry, "why") or ""}
        for entry in records(tree, "unseen")
    ]


def next_repair(diagnosis: Mapping[str, Any]) -> str | None:
    """The cheapest step that some repairable cause needs."""
    steps = {
        text(entry, "repair") for entry in records(diagnosis, "causes") if entry.get("severity") == REPAIRABLE
    }
    return next((step for step in LADDER if step in steps), None)
