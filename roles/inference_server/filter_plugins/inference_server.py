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
    from collections.abc import Callable
    from types import ModuleType

_PACKAGE = "recover_and_bench_inference_server"
LOOPBACK = ("127.0.0.1", "localhost", "::1")


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
flags = importlib.import_module(f"{_PACKAGE}.flags")
refusals = importlib.import_module(f"{_PACKAGE}.refusals")
role_settings = importlib.import_module(f"{_PACKAGE}.settings")
units = importlib.import_module(f"{_PACKAGE}.units")


def plain(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Without Ansible's tagged types, which dataclasses and difflib don't expect."""
    return json.loads(json.dumps(value))


def of_plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function as a filter: it is given plain values."""

    def called(*arguments: Any) -> Any:  # noqa: ANN401 - any JSON value
        return function(*(plain(argument) for argument in arguments))

    return called


def answers(engines: dict[str, Any]) -> dict[str, Any]:
    """The answers of a probe that need not be asked for again in this run: those the node didn't keep."""
    return {
        name: {"key": found["key"], "options": found["options"]}
        for name, found in engines.items()
        if found["options"] and not found["cached"]
    }


def _template(text: str) -> jinja2.Template:
    render = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - a unit file, not HTML
    )
    render.filters["comment"] = CoreFilters().filters()["comment"]
    return render.from_string(text)


def notes(host: str, served: list[Any]) -> list[str]:
    """What an operator should know of how the units were made."""
    told = []
    renamed = {f"{said} -> {used}" for each in served for said, used in each.renamed.items()}
    if renamed:
        told.append(f"renamed for this build: {', '.join(sorted(renamed))}")
    if host not in LOOPBACK and any("api_key" not in each.credentials for each in served):
        told.append(f"listens on {host} without an API key")
    return told


def wanted(settings: dict[str, Any], probe: dict[str, Any]) -> dict[str, Any]:
    """Problems, files and names: every unit and description, with flags checked against the installed builds.

    Besides what `needs` takes, `settings` has: model_digests, host, port, unit_dir, description_dir,
    unit_template and unit (what all units share).
    """
    template = _template(settings["unit_template"])
    ready = {name: role_settings.served(settings, probe, name) for name in settings["configurations"]}
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
            credentials=sorted(each.credentials.items()),
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
        "problems": refusals.refusals(served),
        "files": files,
        "names": [each.name for each in served],
        "keep": [name for name, each in ready.items() if each is None],
        "notes": notes(settings["host"], served),
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
            "inference_server_needs": of_plain(role_settings.needs),
            "inference_server_lasting_problems": of_plain(refusals.lasting_problems),
            "inference_server_flag_problems": of_plain(refusals.flag_problems),
            "inference_server_answers": answers,
            "inference_server_model_problems": of_plain(refusals.model_problems),
            "inference_server_gpu_problems": of_plain(refusals.gpu_problems),
            "inference_server_wanted": of_plain(wanted),
        }
