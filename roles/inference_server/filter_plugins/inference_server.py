"""Filters of the role inference_server: what configurations need of a node, and the files they become."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
from ansible.errors import AnsibleFilterError
from ansible.plugins.filter.core import FilterModule as CoreFilters

if TYPE_CHECKING:
    from types import ModuleType

_PACKAGE = "recover_and_bench_inference_server"


def _package() -> ModuleType:
    """The role's module_utils as a package: Ansible makes them importable for modules only."""
    if _PACKAGE not in sys.modules:
        folder = Path(__file__).resolve().parent.parent / "module_utils" / "inference_server"
        spec = importlib.util.spec_from_file_location(
            _PACKAGE, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        if spec is None or spec.loader is None:
            raise AnsibleFilterError(f"{folder} cannot be loaded")
        package = importlib.util.module_from_spec(spec)
        sys.modules[_PACKAGE] = package
        spec.loader.exec_module(package)
    return sys.modules[_PACKAGE]


_package()
engine_from = importlib.import_module(f"{_PACKAGE}.engines").engine_from
configurations = importlib.import_module(f"{_PACKAGE}.configurations")
flags = importlib.import_module(f"{_PACKAGE}.flags")
units = importlib.import_module(f"{_PACKAGE}.units")


def plain(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Without Ansible's tagged types, which dataclasses and difflib don't expect."""
    return json.loads(json.dumps(value))


def needs(settings: dict[str, Any]) -> dict[str, Any]:
    """What the declared configurations need of a node, and every problem that needs no look at it.

    `settings`: configurations, engines, templates, model_paths, program_dir.
    """
    settings = plain(settings)
    problems: list[str] = []
    engines = {}
    used = {each.get("engine") for each in settings["configurations"].values() if isinstance(each, dict)}
    for name, declared in settings["engines"].items():
        if name not in used:
            continue
        try:
            engines[name] = engine_from(name, declared, settings["templates"], settings["program_dir"])
        except ValueError as exc:
            problems.append(str(exc))
    faulty = {name for name in settings["engines"] if name in used and name not in engines}
    for name, declared in settings["configurations"].items():
        if not isinstance(declared, dict):
            problems.append(f"configuration {name}: must be a mapping, not {type(declared).__name__}")
        elif declared.get("engine") not in faulty:
            problems += configurations.check_configuration(
                name, declared, engines, list(settings["model_paths"])
            )
    if problems:
        return {"problems": problems, "engines": [], "models": []}
    models = {}
    for declared in settings["configurations"].values():
        engine = engines[declared["engine"]]
        for model in filter(None, (declared["model"], declared.get("draft_model"))):
            models[_place(model, engine.name)] = {
                "name": _place(model, engine.name),
                "path": settings["model_paths"][model],
                "needs": list(engine.needs),
                "as_file": engine.model_is_file,
            }
    asked = [
        {
            "name": engine.name,
            "command": list(engine.command),
            "version_argv": list(engine.version_argv),
            "package": engine.package,
            "launcher": engine.launcher,
            "launcher_path": engine.launcher_path,
            "requirements": engine.requirements,
            "venv": engine.venv,
        }
        for engine in engines.values()
    ]
    return {"problems": [], "engines": asked, "models": list(models.values())}


def _place(model: str, engine: str) -> str:
    """A model under the conditions of an engine: two engines may want different files of it."""
    return f"{model} for {engine}"


def lasting_problems(settings: dict[str, Any], probe: dict[str, Any]) -> list[str]:
    """What neither repairing, nor staging, nor installing what this role installs can mend."""
    settings, probe = plain(settings), plain(probe)
    found = []
    for engine in needs(settings)["engines"]:
        answer = probe["engines"][engine["name"]]
        absent = answer["fault"] in ("missing", "package") and engine["requirements"] is None
        if absent or answer["fault"] == "hidden":
            found.append(answer["problem"])
    unseen = {name: each for name, each in probe["models"].items() if each.get("fault") == "hidden"}
    seen = {name: {**each, "problem": None} for name, each in probe["models"].items() if name not in unseen}
    return found + model_problems(settings, {"models": seen | unseen})


def flag_problems(settings: dict[str, Any], probe: dict[str, Any], helps: dict[str, str]) -> list[str]:
    """What the builds would refuse, as far as it can be known before anything is installed or staged.

    `helps`: the --help of each launcher that comes with the role. An engine without one is asked on the node,
    unless the role itself installs it: another build may be there by then.
    """
    settings, probe = plain(settings), plain(probe)
    needed = needs(settings)
    engines = {}
    for engine in needed["engines"]:
        answer = probe["engines"][engine["name"]]
        if engine["launcher"] is not None:
            options = flags.parse_help(helps[engine["launcher"]]).values()
            answer = {
                "build": f"{engine['launcher']} of this role",
                "options": [option.to_json() for option in options],
                "problem": None,
            }
        elif engine["requirements"] is not None:
            answer = {**answer, "problem": "is installed later"}
        engines[engine["name"]] = answer
    models = {each["name"]: {**each, "file": None, "problem": None} for each in needed["models"]}
    served = (
        _serve(settings, {"engines": engines, "models": models}, name) for name in settings["configurations"]
    )
    return _refusals([each for each in served if each is not None])


def answers(engines: dict[str, Any]) -> dict[str, Any]:
    """The answers of a probe that need not be asked for again in this run: those the node didn't keep."""
    return {
        name: {"key": found["key"], "options": found["options"]}
        for name, found in engines.items()
        if found["options"] and not found["cached"]
    }


def model_problems(settings: dict[str, Any], probe: dict[str, Any]) -> list[str]:
    """Which configurations lack which model, and why; one sentence a model."""
    settings, probe = plain(settings), plain(probe)
    found = []
    for name, declared in settings["configurations"].items():
        for word, key in (("model", "model"), ("draft model", "draft_model")):
            model = declared.get(key)
            place = probe["models"].get(_place(model, declared["engine"])) if model else None
            if place and place["problem"]:
                found.append((name, f"the {word} {model} {place['problem']}"))
    return _gather(found)


def _refusals(served: list[Any]) -> list[str]:
    """What is wrong with the flags of configurations, with the build that says so."""
    return _gather(
        [
            (each.name, f"{problem} ({each.description['engine_build']})")
            for each in served
            for problem in each.problems
        ]
    )


def _gather(found: list[tuple[str, str]]) -> list[str]:
    """One sentence a problem, whatever the number of configurations that have it."""
    by_problem: dict[str, list[str]] = {}
    for name, problem in found:
        by_problem.setdefault(problem, []).append(name)
    return [
        f"configuration{'s' if len(names) > 1 else ''} {_enumerate(names)}: {problem}"
        for problem, names in by_problem.items()
    ]


def _enumerate(names: list[str], shown: int = 4) -> str:
    more = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {more} more" if more > 0 else "")


def _template(text: str) -> jinja2.Template:
    render = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - a unit file, not HTML
    )
    render.filters["comment"] = CoreFilters().filters()["comment"]
    return render.from_string(text)


def _serve(settings: dict[str, Any], probe: dict[str, Any], name: str) -> Any:  # noqa: ANN401 - a Served, loaded by path
    """A configuration made ready for its node; None where its engine or a model of it isn't there."""
    declared = settings["configurations"][name]
    engine = engine_from(
        declared["engine"],
        settings["engines"][declared["engine"]],
        settings["templates"],
        settings["program_dir"],
    )
    installed = probe["engines"][engine.name]
    asked = [model for model in (declared["model"], declared.get("draft_model")) if model]
    found = {model: probe["models"][_place(model, engine.name)] for model in asked}
    if installed["problem"] or any(each["problem"] for each in found.values()):
        return None
    places = {
        model: configurations.Place(model, each["path"], settings["model_digests"].get(model), each["file"])
        for model, each in found.items()
    }
    options = {option["name"]: flags.Option.from_json(option) for option in installed["options"]}
    return configurations.serve(
        name,
        declared,
        engine,
        configurations.Installed(installed["build"], options),
        configurations.Site(settings["host"], int(settings["port"]), places),
    )


def wanted(settings: dict[str, Any], probe: dict[str, Any]) -> dict[str, Any]:
    """Problems, files and names: every unit and description, with flags checked against the installed builds.

    Besides what `needs` takes, `settings` has: model_digests, host, port, unit_dir, description_dir,
    unit_template and unit (what all units share).
    """
    settings, probe = plain(settings), plain(probe)
    template = _template(settings["unit_template"])
    ready = {name: _serve(settings, probe, name) for name in settings["configurations"]}
    served = [each for each in ready.values() if each is not None]
    files = []
    for each in served:
        unit = template.render(
            **settings["unit"],
            marker=units.MARKER,
            name=each.name,
            engine=each.description["engine_build"],
            model=each.description["model"],
            environment=units.quote_environment(each.environment),
            command_line=units.command_line(each.argv),
        )
        description = json.dumps(each.description, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
        files += [
            {"path": f"{settings['unit_dir']}/{each.unit}", "content": unit, "mode": "0644"},
            {
                "path": f"{settings['description_dir']}/{each.name}.json",
                "content": description,
                "mode": "0644",
            },
        ]
    return {
        "problems": _refusals(served),
        "files": files,
        "names": [each.name for each in served],
        "keep": [name for name, each in ready.items() if each is None],
        "report": {
            engine: {
                "build": found["build"],
                "configurations": [
                    name for name, told in settings["configurations"].items() if told["engine"] == engine
                ],
            }
            for engine, found in sorted(probe["engines"].items())
        },
    }


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {
            "inference_server_needs": needs,
            "inference_server_lasting_problems": lasting_problems,
            "inference_server_flag_problems": flag_problems,
            "inference_server_answers": answers,
            "inference_server_model_problems": model_problems,
            "inference_server_wanted": wanted,
        }
