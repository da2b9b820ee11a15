"""The plan's JSON schema, made from its types: collector/schemas/plan.schema.json is what this says."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from bench_runner.plan import PLAN_VERSION, Plan


def plan_schema() -> dict[str, Any]:
    (root,), parts = msgspec.json.schema_components([Plan], ref_template="#/$defs/{name}")
    plan = parts.pop(root["$ref"].rpartition("/")[2])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"recover-and-bench/plan/{PLAN_VERSION}",
        **plan,
        "title": "plan.yml: what a campaign measures",
        "$defs": parts,
    }


def as_text() -> str:
    return json.dumps(plan_schema(), indent=2, ensure_ascii=False) + "\n"
