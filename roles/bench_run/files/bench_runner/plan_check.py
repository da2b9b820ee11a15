"""From plan.yml to a `Plan`, or to sentences that name the key, what was found and the nearest word."""

from __future__ import annotations

import difflib
import re
import types
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

import msgspec
import yaml

from bench_runner.errors import PlanError
from bench_runner.plan import PLAN_VERSION, Plan

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path


def load_plan(path: Path, *, known_configurations: Collection[str] | None = None) -> Plan:
    """Read and check a plan file; `known_configurations` are the deployed ones, where they are known."""
    try:
        raw = yaml.safe_load(path.read_bytes())
    except OSError as exc:
        raise PlanError([f"{path}: {exc.strerror}"]) from exc
    except yaml.YAMLError as exc:
        raise PlanError([f"{path}: not YAML: {' '.join(str(exc).split())}"]) from exc
    return check_plan(raw, source=path.name, known_configurations=known_configurations)


def check_plan(
    raw: object, *, source: str = "plan", known_configurations: Collection[str] | None = None
) -> Plan:
    if not isinstance(raw, dict):
        raise PlanError(
            [f"{source}: found {_shown(raw)}, needed a mapping with name, configurations, workloads"]
        )
    version = raw.get("schema_version")
    if isinstance(version, int) and version > PLAN_VERSION:
        raise PlanError(
            [f"{source}: schema_version: found {version}, this runner knows {PLAN_VERSION} and older"]
        )
    problems = [f"{source}: {problem}" for problem in _unknown_keys(raw, Plan, "")]
    if problems:
        raise PlanError(problems)
    try:
        plan = msgspec.convert(raw, Plan)
    except msgspec.ValidationError as exc:
        raise PlanError([f"{source}: {_in_words(str(exc), raw)}"]) from exc
    problems = [f"{source}: {problem}" for problem in _contradictions(plan, known_configurations)]
    if problems:
        raise PlanError(problems)
    return plan


def nearest(word: str, words: Collection[str]) -> str:
    """A sentence's end: the word that was meant, else the words there are."""
    close = difflib.get_close_matches(word, list(words), n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known are {', '.join(sorted(words))}" if words else "there is none"


def _unknown_keys(raw: dict[Any, Any], struct: type[msgspec.Struct], path: str) -> Iterator[str]:
    hints = get_type_hints(struct)
    for key, value in raw.items():
        where = f"{path}{key}"
        if key not in hints:
            yield f"{where}: unknown key; {nearest(str(key), list(hints))}"
            continue
        for inner in _structs_in(hints[key]):
            if isinstance(value, dict):
                yield from _unknown_keys(value, inner, f"{where}.")
            elif isinstance(value, list):
                for index, item in enumerate(value):
                    if isinstance(item, dict):
                        yield from _unknown_keys(item, inner, f"{where}[{index}].")


def _structs_in(hint: Any) -> Iterator[type[msgspec.Struct]]:  # noqa: ANN401 - a type expression has no narrower type
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        yield hint
    elif get_origin(hint) in {Union, list, getattr(types, "UnionType", Union)}:
        for inner in get_args(hint):
            yield from _structs_in(inner)


def _in_words(message: str, raw: Any) -> str:  # noqa: ANN401 - walks any document
    """From "Expected `int`, got `str` - at `$.workloads.code.points[1]`" to a sentence with the value."""
    text, _, place = message.partition(" - at `$")
    path = place.rstrip("`").lstrip(".")
    text = text.replace("`", "")
    missing = re.match(r"Object missing required field (\w+)", text)
    if missing:
        return f"{path + '.' if path else ''}{missing.group(1)}: missing"
    found: Any = raw
    for step in re.findall(r"[^.\[\]]+|\[\d+\]", path):
        if isinstance(found, list) and step[1:-1].isdigit():
            found = found[int(step[1:-1])]
        elif isinstance(found, dict):
            found = found.get(step)
    needed = re.sub(r"^Expected ", "needed ", re.sub(r", got .*$", "", text))
    needed = re.sub(r"^Invalid enum value .*$", f"needed schema_version {PLAN_VERSION}", needed)
    return f"{path}: found {_shown(found)}, {needed}"


def _shown(value: Any) -> str:  # noqa: ANN401 - shows anything
    text = repr(value)
    if len(text) > 60:  # noqa: PLR2004 - a line's worth
        text = text[:57] + "..."
    return f"{text} ({type(value).__name__})"


def _contradictions(plan: Plan, known: Collection[str] | None) -> Iterator[str]:
    """What each key alone can't show."""
    yield from _configuration_problems(plan, known)
    workloads = msgspec.structs.asdict(plan.workloads)
    if not any(workloads.values()):
        yield f"workloads: found none, needed at least one of {', '.join(workloads)}"
    for name, workload in workloads.items():
        points = workload.points if workload else []
        for index, point in enumerate(points):
            if point in points[:index]:
                yield f"workloads.{name}.points[{index}]: {point} stands there twice"
    for index, quirk in enumerate(plan.quirks):
        where = f"quirks[{index}] ({quirk.name})"
        if not (quirk.configurations or quirk.flags):
            yield f"{where}: no scope; needed configurations or flags"
        # Quirks are kept for the whole fleet, so one may name a configuration that this plan leaves out.
        allowed = {*plan.configurations, *(known or quirk.configurations)}
        for configuration in set(quirk.configurations) - allowed:
            close = nearest(configuration, allowed)
            yield f"{where}: configuration {configuration!r} is not deployed; {close}"


def _configuration_problems(plan: Plan, known: Collection[str] | None) -> Iterator[str]:
    for index, name in enumerate(plan.configurations):
        if name in plan.configurations[:index]:
            yield f"configurations[{index}]: {name!r} stands there twice"
        if known is not None and name not in known:
            yield f"configurations[{index}]: {name!r} is not deployed; {nearest(name, known)}"
    if plan.baseline not in plan.configurations:
        close = nearest(plan.baseline, plan.configurations)
        yield f"baseline: {plan.baseline!r} is none of the configurations; {close}"
