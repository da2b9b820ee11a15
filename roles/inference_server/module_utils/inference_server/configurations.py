"""From declared configurations to what a unit runs and to the description that its clients read."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .engines import nearest
from .flags import FlagError, check_against_build, check_value, choose_name, choose_names, to_argv

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .engines import Engine
    from .flags import FlagValue, Option

# 1: first version
DESCRIPTION_VERSION = 1
NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_-]{0,79}$")

_REQUIRED = ("engine", "model", "tensor_parallelism", "context_tokens")
_OPTIONAL = ("flags", "draft_model", "port", "environment", "gpus")
_PORTS = range(1024, 65536)


def unit_name(configuration: str) -> str:
    return f"inference-{configuration}.service"


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


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def check_configuration(
    name: str, declared: Mapping[str, Any], engines: Mapping[str, Engine], models: Sequence[str]
) -> list[str]:
    """What is wrong with a configuration that can be known without a host; one sentence each."""
    where = f"configuration {name}"
    if not NAME.fullmatch(name):
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
        hint = nearest(str(declared["engine"]), list(engines))
        return [
            f"{where}: no engine {declared['engine']}{hint}; known: {', '.join(sorted(engines)) or 'none'}"
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
    if declared.get("draft_model") and engine.fill["draft_model"] is None:
        problems.append(f"{where}: the engine {engine.name} has no setting for a draft_model")
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
class Installed:
    """An engine's build on a node, and the options it accepts."""

    build: str
    options: Mapping[str, Option]


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


@dataclass(frozen=True)
class Site:
    """The node's side of a configuration: where engines listen, and where the models lie."""

    host: str
    port: int
    places: Mapping[str, Place]


def settle(declared: Mapping[str, Any], engine: Engine, site: Site) -> dict[str, FlagValue]:
    """All flags of a configuration in our own names: what is declared, and what the role fills in."""
    settings: dict[str, FlagValue] = {**engine.flags, **declared.get("flags", {})}
    context = int(declared["context_tokens"])
    if engine.scale is not None:
        share = settings.get(engine.scale, 1)
        context *= share if isinstance(share, int) and not isinstance(share, bool) else 1
    filled: dict[str, FlagValue] = {
        "model": site.places[declared["model"]].argument(as_file=engine.model_is_file),
        "served_model": declared["model"],
        "host": site.host,
        "port": int(declared.get("port") or site.port),
        "context_tokens": context,
        "tensor_parallelism": int(declared["tensor_parallelism"]),
    }
    if declared.get("draft_model"):
        filled["draft_model"] = site.places[declared["draft_model"]].argument(as_file=engine.model_is_file)
    placed = {flag: filled[word] for word, flag in engine.fill.items() if flag is not None and word in filled}
    return {**settings, **placed}


def serve(
    name: str,
    declared: Mapping[str, Any],
    engine: Engine,
    installed: Installed,
    site: Site,
) -> Served:
    """Command line and description of a configuration that `check_configuration` found nothing wrong with."""
    settings = settle(declared, engine, site)
    problems: list[str] = []
    try:
        flags = choose_names(settings, engine.aliases, installed.options)
    except FlagError as exc:
        flags = settings
        problems.append(str(exc))
    problems += check_against_build(flags, installed.options)

    # Where a thing lies says nothing of what is measured: paths and ports stay out of the identity.
    named = {
        word: choose_name(flag, engine.aliases, installed.options)
        for word, flag in engine.fill.items()
        if flag
    }
    placing = {named.get(word) for word in ("model", "served_model", "host", "port")}
    resolved = {flag: value for flag, value in sorted(flags.items()) if flag not in placing}
    if declared.get("draft_model"):
        resolved[str(named["draft_model"])] = site.places[declared["draft_model"]].identity
    model = site.places[declared["model"]]
    description = {
        "schema_version": DESCRIPTION_VERSION,
        "configuration": name,
        "unit": unit_name(name),
        "url": f"http://{site.host}:{int(declared.get('port') or site.port)}",
        "engine": engine.name,
        "engine_build": installed.build,
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
        argv=(*engine.command, *to_argv(flags, installed.options)),
        environment={
            **engine.environment,
            **gpu_environment(declared.get("gpus") or []),
            **{key: str(value) for key, value in (declared.get("environment") or {}).items()},
        },
        description=description,
        problems=tuple(problems),
    )
