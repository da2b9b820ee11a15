"""From declared configurations to what a unit runs and to the description that its clients read."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .flags import FlagError, FlagValue, Option, check_against_build, check_value, choose_names, to_argv

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# 1: first version
DESCRIPTION_VERSION = 1
NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_-]{0,79}$")

_REQUIRED = ("engine", "model", "tensor_parallelism", "context_tokens")
_OPTIONAL = ("flags", "draft_model", "port", "environment", "gpus")
_PORTS = range(1024, 65536)


def unit_name(configuration: str) -> str:
    return f"inference-{configuration}.service"


def nearest(word: str, words: Sequence[str]) -> str:
    near = difflib.get_close_matches(word, words, n=1, cutoff=0.5)
    return f"; nearest: {near[0]}" if near else ""


@dataclass(frozen=True)
class Engine:
    """An engine of this node: its template with the node's own settings put over it."""

    name: str
    template: str
    adapter: str
    command: tuple[str, ...]
    fill: Mapping[str, str | None]
    scale: str | None
    model_is_file: bool
    needs: tuple[str, ...]
    aliases: Mapping[str, Sequence[str]]
    flags: Mapping[str, FlagValue]
    environment: Mapping[str, str]
    gpu: bool
    launcher: str | None = None
    launcher_path: str | None = None
    version_argv: tuple[str, ...] = ()
    package: str | None = None
    requirements: str | None = None
    venv: str | None = None


@dataclass(frozen=True)
class Served:
    """A configuration that is ready to be written down."""

    name: str
    engine: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    description: Mapping[str, Any]
    problems: tuple[str, ...] = field(default=())

    @property
    def unit(self) -> str:
        return unit_name(self.name)


def engine_from(
    name: str, declared: Mapping[str, Any], templates: Mapping[str, Mapping[str, Any]], program_dir: str
) -> Engine:
    """Put an engine's settings over its template; ValueError names what is wrong."""
    where = f"engine {name}"
    known = ("template", "command", "venv", "requirements", "environment", "aliases", "flags")
    for key in declared:
        if key not in known:
            raise ValueError(f"{where}: unknown key {key}{nearest(key, known)}; known: {', '.join(known)}")
    template_name = declared.get("template", name)
    if template_name not in templates:
        raise ValueError(
            f"{where}: no template {template_name}{nearest(str(template_name), list(templates))};"
            f" known: {', '.join(sorted(templates))}"
        )
    template = templates[template_name]
    venv = declared.get("venv")
    if "command" not in declared and not venv:
        raise ValueError(
            f"{where}: say where it is installed: venv (a folder on the node) or command (a list)"
        )
    launcher = template.get("launcher")
    launcher_path = f"{program_dir}/{launcher}" if launcher else None
    places = {"python": f"{venv}/bin/python", "venv": str(venv), "launcher": str(launcher_path)}
    command = declared.get("command", template["command"])
    if not isinstance(command, (list, tuple)) or not command:
        raise ValueError(f"{where}: command must be a list: the program and its first arguments")
    words = tuple(str(word).format(**places) for word in command)
    if not words[0].startswith("/"):
        raise ValueError(
            f"{where}: command must begin with an absolute path, not {words[0]}: systemd needs one"
        )
    return Engine(
        name=name,
        template=str(template_name),
        adapter=str(template["adapter"]),
        command=words,
        fill=template["fill"],
        scale=template.get("scale"),
        model_is_file=template["model"] == "file",
        needs=tuple(template["needs"]),
        aliases={**template["aliases"], **declared.get("aliases", {})},
        flags={**template["flags"], **declared.get("flags", {})},
        environment={key: str(value) for key, value in declared.get("environment", {}).items()},
        gpu=bool(template["gpu"]),
        launcher=launcher,
        launcher_path=launcher_path,
        version_argv=(*words, *template["version"]) if "version" in template else (),
        package=template.get("package"),
        requirements=declared.get("requirements", template.get("requirements")),
        venv=venv,
    )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def check_configuration(
    name: str, declared: Mapping[str, Any], engines: Mapping[str, Engine], models: Sequence[str]
) -> list[str]:
    """What is wrong with a configuration that can be known without a host; one sentence each."""
    where = f"configuration {name}"
    if not NAME.match(name):
        return [f"{where}: a name has letters, digits, - and _, at most 80"]
    known = _REQUIRED + _OPTIONAL
    problems = [
        f"{where}: unknown key {key}{nearest(key, known)}; known: {', '.join(known)}"
        for key in declared
        if key not in known
    ]
    problems += [f"{where}: {key} is missing" for key in _REQUIRED if key not in declared]
    if problems:
        return problems
    engine = engines.get(declared["engine"])
    if engine is None:
        return [
            f"{where}: no engine {declared['engine']}{nearest(str(declared['engine']), list(engines))};"
            f" known: {', '.join(sorted(engines)) or 'none'}"
        ]
    problems += [
        f"{where}: {key} must be a whole number from 1, not {declared[key]!r}"
        for key in ("tensor_parallelism", "context_tokens")
        if not _is_count(declared[key])
    ]
    if not problems and engine.fill["tensor_parallelism"] is None and declared["tensor_parallelism"] != 1:
        problems.append(
            f"{where}: tensor_parallelism must be 1: the engine {engine.name} has no such setting"
        )
    if declared.get("port") is not None and (
        not _is_count(declared["port"]) or declared["port"] not in _PORTS
    ):
        problems.append(f"{where}: port must be 1024 to 65535, not {declared['port']!r}")
    for key in ("model", "draft_model"):
        if declared.get(key) is not None and declared[key] not in models:
            problems.append(
                f"{where}: its {key} {declared[key]} is not among the models of this node"
                f"{nearest(str(declared[key]), list(models))}; known: {', '.join(sorted(models)) or 'none'}"
            )
    return problems + _check_flags(where, declared, engine)


def _check_flags(where: str, declared: Mapping[str, Any], engine: Engine) -> list[str]:
    flags = declared.get("flags", {})
    if not isinstance(flags, dict):
        return [f"{where}: flags must be a mapping of flag to value"]
    found = [check_value(str(flag), value) for flag, value in flags.items()]
    problems = [f"{where}: {problem}" for problem in found if problem is not None]
    # What the role fills in has one place to be said; a flag of the same name would win silently.
    filled = {flag: word for word, flag in engine.fill.items() if flag is not None}
    for flag in flags:
        if flag in filled:
            word = filled[flag]
            say = word if word in _REQUIRED + _OPTIONAL else f"nothing: the role sets the {word}"
            problems.append(f"{where}: flag {flag} is filled in by the role; say {say} instead")
    return problems


def gpu_environment(gpus: Sequence[object]) -> dict[str, str]:
    """GPUs by index or UUID; the order by PCI bus makes an index the one nvidia-smi shows."""
    if not gpus:
        return {}
    return {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(str(each) for each in gpus),
    }


@dataclass(frozen=True)
class Place:
    """Where a model lies on the node: its folder, the file in it (for engines that want one), its digest."""

    name: str
    path: str
    digest: str | None
    file: str | None = None

    def argument(self, *, as_file: bool) -> str:
        return f"{self.path}/{self.file}" if as_file and self.file else self.path

    @property
    def identity(self) -> str:
        """The model in a description's flags: a path says nothing about what was measured."""
        return f"{self.name}@{self.digest}" if self.digest else self.name


def serve(
    name: str,
    declared: Mapping[str, Any],
    engine: Engine,
    *,
    places: Mapping[str, Place],
    host: str,
    default_port: int,
    engine_build: str | None,
    known: Mapping[str, Option] | None,
) -> Served:
    """The command line and the description of one configuration that `check_configuration` found nothing wrong with.

    `known` is what the installed build accepts; without it (a check run before the engine is there) the flags are
    not checked.
    """
    model = places[declared["model"]]
    draft = places[declared["draft_model"]] if declared.get("draft_model") else None
    port = int(declared.get("port") or default_port)
    settings: dict[str, FlagValue] = {**engine.flags, **declared.get("flags", {})}
    context = int(declared["context_tokens"])
    if engine.scale is not None:
        share = settings.get(engine.scale, 1)
        context *= share if isinstance(share, int) and not isinstance(share, bool) else 1
    filled: dict[str, FlagValue] = {
        "model": model.argument(as_file=engine.model_is_file),
        "served_model": model.name,
        "host": host,
        "port": port,
        "context_tokens": context,
        "tensor_parallelism": int(declared["tensor_parallelism"]),
    }
    if draft is not None:
        filled["draft_model"] = draft.argument(as_file=engine.model_is_file)
    placed = {flag: filled[word] for word, flag in engine.fill.items() if flag is not None and word in filled}
    problems: list[str] = []
    try:
        flags = choose_names({**settings, **placed}, engine.aliases, known)
    except FlagError as exc:
        flags = {**settings, **placed}
        problems.append(str(exc))
    if known is not None:
        problems += check_against_build(flags, known)
    hidden = {engine.fill[word] for word in ("model", "served_model", "host", "port")}
    resolved = {flag: value for flag, value in sorted(flags.items()) if flag not in hidden}
    if draft is not None and engine.fill["draft_model"] in resolved:
        resolved[str(engine.fill["draft_model"])] = draft.identity
    description = {
        "schema_version": DESCRIPTION_VERSION,
        "configuration": name,
        "unit": unit_name(name),
        "url": f"http://{host}:{port}",
        "engine": engine.name,
        "engine_build": engine_build,
        "model": model.name,
        "served_model": model.name,
        "model_path": model.path,
        "model_digest": model.digest,
        "tensor_parallelism": int(declared["tensor_parallelism"]),
        "context_tokens": int(declared["context_tokens"]),
        "flags": resolved,
        "adapter": engine.adapter,
    }
    return Served(
        name=name,
        engine=engine.name,
        argv=(*engine.command, *to_argv(flags, known)),
        environment={
            **engine.environment,
            **gpu_environment(declared.get("gpus") or []),
            **{key: str(value) for key, value in (declared.get("environment") or {}).items()},
        },
        description=description,
        problems=tuple(problems),
    )
