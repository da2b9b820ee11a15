"""Reads tests/data/evidence/*.json: each a whole case, or a difference from another one (its README)."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "data/evidence"
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))


@dataclass
class EvidenceCase:
    name: str
    about: str
    asked: dict[str, Any]
    link: dict[str, Any]
    host: dict[str, Any]
    inside: dict[str, Any]
    expect: dict[str, Any] = field(default_factory=dict)

    def arguments(self):
        """For diagnose()."""
        return {
            **self.asked,
            "link": self.link,
            "host_evidence": self.host,
            "node_evidence": self.inside,
            "probed_at": "2026-11-30T19:43:19Z",
        }


def load(name):
    whole = _merged(name)
    host, inside = whole.get("host") or {}, whole.get("inside") or {}
    for tree in (host, inside):
        nodes = tree.get("device_nodes")
        if isinstance(nodes, dict):
            tree["device_nodes"] = [{"path": path, **facts} for path, facts in sorted(nodes.items())]
    lines = whole.get("config")
    if host:
        facts = host["containers"][str(whole["asked"]["vmid"])]
        facts["config_text"] = "".join(f"{line}\n" for line in lines) if lines is not None else None
    return EvidenceCase(
        name, whole["about"], whole["asked"], whole["link"], host, inside, expect=whole["expect"]
    )


def _merged(name):
    case = json.loads((FOLDER / f"{name}.json").read_text())
    base = case.pop("base", None)
    if base is None:
        return case
    whole = _merged(base)
    whole["expect"] = {}
    return merge(whole, case)


def merge(target, patch):
    """RFC 7396: null takes a key away, a list replaces a list."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result
