"""The role's settings as a whole: what they need of a node, and each configuration made ready for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .configurations import Installed, Place, Served, Site, serve
from .declared import check_configuration
from .engines import engine_from
from .flags import Option

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .engines import Engine


def place_of(model: str, engine: str) -> str:
    """A model under the conditions of an engine: two engines may want different files of it."""
    return f"{model} for {engine}"


def engine_of(settings: Mapping[str, Any], name: str) -> Engine:
    return engine_from(name, settings["engines"][name], settings["templates"], settings["program_dir"])


def needs(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What the declared configurations need of a node, and every problem that needs no look at it.

    `settings`: configurations, engines, templates, model_paths, deferred_models, program_dir.
    """
    problems: list[str] = []
    engines = {}
    used = {each.get("engine") for each in settings["configurations"].values() if isinstance(each, dict)}
    wanted = [name for name in settings["engines"] if name in used]
    for name in wanted:
        try:
            engines[name] = engine_of(settings, name)
        except ValueError as exc:  # noqa: PERF203 - each engine has its say
            problems.append(str(exc))
    for name, declared in settings["configurations"].items():
        if not isinstance(declared, dict):
            problems.append(f"configuration {name}: must be a mapping, not {type(declared).__name__}")
        elif declared.get("engine") in engines or declared.get("engine") not in wanted:
            problems += check_configuration(name, declared, engines, list(settings["model_paths"]))
    if problems:
        return {"problems": problems, "engines": [], "models": [], "credentials": []}
    models = {}
    for declared in settings["configurations"].values():
        engine = engines[declared["engine"]]
        for model in filter(None, (declared["model"], declared.get("draft_model"))):
            models[place_of(model, engine.name)] = {
                "name": place_of(model, engine.name),
                "path": settings["model_paths"][model],
                "needs": list(engine.needs),
                "as_file": engine.model_is_file,
                "files": settings["deferred_models"].get(model),
            }
    return {
        "problems": [],
        "engines": [_asked(engine) for engine in engines.values()],
        "models": list(models.values()),
        "credentials": [
            {"engine": engine.name, "name": name, "path": path}
            for engine in engines.values()
            for name, path in engine.credentials.items()
        ],
    }


def _asked(engine: Engine) -> dict[str, Any]:
    return {
        "name": engine.name,
        "command": list(engine.command),
        "version_argv": list(engine.version_argv),
        "environment": dict(engine.environment),
        "package": engine.package,
        "launcher": engine.launcher,
        "launcher_path": engine.launcher_path,
        "requirements": engine.requirements,
        "venv": engine.venv,
    }


def served(settings: Mapping[str, Any], probe: Mapping[str, Any], name: str) -> Served | None:
    """A configuration made ready for its node; None where its engine or a model of it isn't there."""
    declared = settings["configurations"][name]
    engine = engine_of(settings, declared["engine"])
    installed = probe["engines"][engine.name]
    asked = [model for model in (declared["model"], declared.get("draft_model")) if model]
    found = {model: probe["models"][place_of(model, engine.name)] for model in asked}
    if installed["problem"] or any(each["problem"] for each in found.values()):
        return None
    places = {
        model: Place(model, each["path"], settings["model_digests"].get(model), each["file"])
        for model, each in found.items()
    }
    options = {option["name"]: Option.from_json(option) for option in installed["options"]}
    return serve(
        name,
        declared,
        engine,
        Installed(installed["build"], options),
        Site(settings["host"], int(settings["port"]), places),
    )
