"""From plan.yml to a `Plan`, or to sentences that name line, key, what was found and the nearest word."""

from __future__ import annotations

from datetime import date, datetime
from typing import TYPE_CHECKING, Any

import msgspec
import yaml

from bench_runner.deadline import NEEDED
from bench_runner.errors import PlanError
from bench_runner.plan import PLAN_VERSION, Plan
from bench_runner.plan_contradictions import contradictions
from bench_runner.plan_places import doubles, line_numbers, place_of
from bench_runner.plan_words import in_words, nearest, shown, unknown_keys

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

__all__ = ["check_plan", "load_plan", "nearest", "read_plan_file"]

_TIMESTAMP = "tag:yaml.org,2002:timestamp"


class _PlanLoader(yaml.SafeLoader):
    """Days and times stay text, so that one that isn't in the calendar is refused by its key."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - the base's own attribute
        first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def load_plan(path: Path, *, known_configurations: Collection[str] | None = None) -> Plan:
    """Read and check a plan file; `known_configurations` are the deployed ones, where they are known."""
    raw, places = read_plan_file(path)
    return check_plan(raw, source=path.name, places=places, known_configurations=known_configurations)


def read_plan_file(path: Path) -> tuple[object, dict[str, str]]:
    """What the file says, and the place of each key."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as exc:
        raise PlanError([f"{path}: {exc.strerror}"]) from exc
    except UnicodeDecodeError as exc:
        raise PlanError([f"{path}: not UTF-8: {exc.reason} at byte {exc.start}"]) from exc
    try:
        raw = yaml.load(text, Loader=_PlanLoader)  # noqa: S506 - a safe loader with less
        places = {where: f"{path.name}:{line}" for where, line in line_numbers(text).items()}
        twice = list(doubles(text))
    except yaml.MarkedYAMLError as exc:
        line = f":{exc.problem_mark.line + 1}" if exc.problem_mark else ""
        said = " ".join(part for part in (exc.context, exc.problem) if part)
        raise PlanError([f"{path}{line}: not YAML: {said}"]) from exc
    except (yaml.YAMLError, RecursionError, ValueError) as exc:
        raise PlanError([f"{path}: not YAML: {' '.join(str(exc).split())}"]) from exc
    if twice:
        raise PlanError([f"{place_of(problem, places) or path.name}: {problem}" for problem in twice])
    return raw, places


def check_plan(
    raw: object,
    *,
    source: str = "plan",
    places: Mapping[str, str] | None = None,
    known_configurations: Collection[str] | None = None,
) -> Plan:
    """`places` says of each key where it stands (`plan.yml:12`); where it doesn't, `source` is named."""

    def refuse(problems: list[str]) -> PlanError:
        return PlanError([f"{place_of(each, places or {}) or source}: {each}" for each in problems])

    if not isinstance(raw, dict):
        raise refuse([f"found {shown(raw)}, needed a mapping with name, configurations, workloads"])
    version = raw.get("schema_version")
    if isinstance(version, int) and version > PLAN_VERSION:
        raise refuse([f"schema_version: found {version}, this runner knows {PLAN_VERSION} and older"])
    plain: dict[Any, Any] = _plain(raw)
    problems = list(unknown_keys(plain, Plan))
    if isinstance(plain.get("deadline"), (int, float)):
        problems.append(f"deadline: found {shown(plain['deadline'])}, {NEEDED}")
    if problems:
        raise refuse(problems)
    try:
        plan = msgspec.convert(plain, Plan)
    except msgspec.ValidationError as exc:
        raise refuse([in_words(str(exc), plain, Plan)]) from exc
    problems = list(contradictions(plan, known_configurations))
    if problems:
        raise refuse(problems)
    return plan


def _plain(value: Any) -> Any:  # noqa: ANN401 - walks any document
    """YAML makes times of what looks like one; here they are text."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value.isoformat() if isinstance(value, (date, datetime)) else value
