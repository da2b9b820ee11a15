"""What a node's answers speak against, and when: before anything is done, or once all is in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .flags import parse_help
from .gpus import check_present
from .settings import engine_of, needs, place_of, served

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .configurations import Served


def lasting_problems(settings: Mapping[str, Any], probe: Mapping[str, Any]) -> list[str]:
    """What neither repairing, nor staging, nor installing what this role installs can mend."""
    found = []
    needed = needs(settings)
    for engine in needed["engines"]:
        answer = probe["engines"][engine["name"]]
        absent = answer["fault"] in ("missing", "package") and engine["requirements"] is None
        if absent or answer["fault"] == "hidden":
            found.append(answer["problem"])
    for each in needed["credentials"]:
        problem = probe["credentials"].get(each["path"])
        if problem:
            found.append(f"engine {each['engine']}: its {each['name']} {problem}")
    unseen = {name: each for name, each in probe["models"].items() if each.get("fault") == "hidden"}
    seen = {name: {**each, "problem": None} for name, each in probe["models"].items() if name not in unseen}
    return found + model_problems(settings, {"models": seen | unseen})


def flag_problems(
    settings: Mapping[str, Any], probe: Mapping[str, Any], helps: Mapping[str, str]
) -> list[str]:
    """What the builds would refuse, as far as it can be known before anything is installed or staged.

    `helps`: the --help of each launcher that comes with the role. An engine without one is asked on the node,
    unless the role itself installs it: another build may be there by then.
    """
    needed = needs(settings)
    engines = {}
    for engine in needed["engines"]:
        answer = probe["engines"][engine["name"]]
        if engine["launcher"] is not None:
            options = parse_help(helps[engine["launcher"]]).values()
            answer = {
                "build": f"{engine['launcher']} of this role",
                "options": [option.to_json() for option in options],
                "problem": None,
            }
        elif engine["requirements"] is not None:
            answer = {**answer, "problem": "is installed later"}
        engines[engine["name"]] = answer
    models = {each["name"]: {**each, "file": None, "problem": None} for each in needed["models"]}
    there = {"engines": engines, "models": models}
    return refusals(served(settings, there, name) for name in settings["configurations"])


def model_problems(settings: Mapping[str, Any], probe: Mapping[str, Any]) -> list[str]:
    """Which configurations lack which model, and why; one sentence a model."""
    found = []
    for name, declared in settings["configurations"].items():
        for word, key in (("model", "model"), ("draft model", "draft_model")):
            model = declared.get(key)
            place = probe["models"].get(place_of(model, declared["engine"])) if model else None
            if place and place["problem"]:
                found.append((name, f"the {word} {model} {place['problem']}"))
    return _gather(found)


def gpu_problems(settings: Mapping[str, Any], probe: Mapping[str, Any]) -> list[str]:
    """Which configurations lack GPUs; asked once they are repaired."""
    found = []
    for name, declared in settings["configurations"].items():
        if engine_of(settings, declared["engine"]).gpu:
            lack = check_present(declared.get("gpus") or [], declared["tensor_parallelism"], probe["gpus"])
            found += [(name, lack)] if lack else []
    return _gather(found)


def refusals(configurations: Iterable[Served | None]) -> list[str]:
    """What is wrong with the flags of configurations, with the build that says so."""
    return _gather(
        [
            (each.name, f"{problem} ({each.description['engine_build']})")
            for each in configurations
            if each is not None
            for problem in each.problems
        ]
    )


def _gather(found: Sequence[tuple[str, str]]) -> list[str]:
    """One sentence a problem, whatever the number of configurations that have it."""
    by_problem: dict[str, list[str]] = {}
    for name, problem in found:
        by_problem.setdefault(problem, []).append(name)
    return [
        f"configuration{'s' if len(names) > 1 else ''} {_enumerate(names)}: {problem}"
        for problem, names in by_problem.items()
    ]


def _enumerate(names: Sequence[str], shown: int = 4) -> str:
    more = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {more} more" if more > 0 else "")
