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
            engines[name] = configurations.engine_from(
                name, declared, settings["templates"], settings["program_dir"]
            )
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


def model_problems(settings: dict[str, Any], probe: dict[str, Any]) -> list[str]:
    """Which configurations lack which model, and why; one sentence a model."""
    settings, probe = plain(settings), plain(probe)
    lacking: dict[tuple[str, str, str], list[str]] = {}
    for name, declared in settings["configurations"].items():
        for word, key in (("model", "model"), ("draft model", "draft_model")):
            model = declared.get(key)
            found = probe["models"].get(_place(model, declared["engine"])) if model else None
            if found and found["problem"]:
                lacking.setdefault((word, model, found["problem"]), []).append(name)
    return [
        f"configuration{'s' if len(names) > 1 else ''} {_enumerate(names)}:"
        f" {'their' if len(names) > 1 else 'its'} {word} {model} {problem}"
        for (word, model, problem), names in lacking.items()
    ]


def _enumerate(names: list[str], shown: int = 4) -> str:
    more = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {more} more" if more > 0 else "")


def wanted(settings: dict[str, Any], probe: dict[str, Any]) -> dict[str, Any]:
    """Problems, files and names: every unit and description, with flags checked against the installed builds.

    Besides what `needs` takes, `settings` has: model_digests, host, port, unit_dir, description_dir, unit_template
    and unit (what all units share).
    """
    settings, probe = plain(settings), plain(probe)
    render = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - a unit file, not HTML
    )
    render.filters["comment"] = CoreFilters().filters()["comment"]
    template = render.from_string(settings["unit_template"])
    problems: list[str] = []
    files: list[dict[str, str]] = []
    names: list[str] = []
    keep: list[str] = []
    for name, declared in settings["configurations"].items():
        engine = configurations.engine_from(
            declared["engine"],
            settings["engines"][declared["engine"]],
            settings["templates"],
            settings["program_dir"],
        )
        asked = [model for model in (declared["model"], declared.get("draft_model")) if model]
        found = {model: probe["models"][_place(model, engine.name)] for model in asked}
        installed = probe["engines"][engine.name]
        if installed["problem"] or any(each["problem"] for each in found.values()):
            keep.append(name)
            continue
        served = configurations.serve(
            name,
            declared,
            engine,
            places={
                model: configurations.Place(
                    model, each["path"], settings["model_digests"].get(model), each["file"]
                )
                for model, each in found.items()
            },
            host=settings["host"],
            default_port=int(settings["port"]),
            engine_build=installed["build"],
            known={option["name"]: flags.Option.from_json(option) for option in installed["options"]},
        )
        names.append(name)
        problems += [f"configuration {name}: {problem} ({installed['build']})" for problem in served.problems]
        unit = template.render(
            **settings["unit"],
            marker=units.MARKER,
            name=name,
            engine=installed["build"],
            model=served.description["model"],
            environment=units.quote_environment(served.environment),
            command_line=units.command_line(served.argv),
        )
        description = json.dumps(served.description, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
        files.append({"path": f"{settings['unit_dir']}/{served.unit}", "content": unit, "mode": "0644"})
        files.append(
            {"path": f"{settings['description_dir']}/{name}.json", "content": description, "mode": "0644"}
        )
    used = {declared["engine"] for declared in settings["configurations"].values()}
    report = {
        name: {
            "build": probe["engines"][name]["build"],
            "configurations": [
                each for each, told in settings["configurations"].items() if told["engine"] == name
            ],
        }
        for name in sorted(used)
    }
    return {"problems": problems, "files": files, "names": names, "keep": keep, "report": report}


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {
            "inference_server_needs": needs,
            "inference_server_model_problems": model_problems,
            "inference_server_wanted": wanted,
        }
