"""From declared configurations to what a unit runs and to the description that its clients read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .flags import FlagError, check_against_build, from_words, to_argv
from .gpus import gpu_environment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .engines import Engine
    from .flags import FlagValue, Option

# 1: first version
DESCRIPTION_VERSION = 1
# Where a client on the node finds a server that listens everywhere.
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - compared with, not listened on


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
    problems: tuple[str, ...] = ()
    # Said -> used, where this build has another name for a flag.
    renamed: Mapping[str, str] = field(default_factory=dict)
    credentials: Mapping[str, str] = field(default_factory=dict)

    @property
    def unit(self) -> str:
        return unit_name(self.name)


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
    known = installed.options
    renamed: dict[str, str] = {}
    problems: list[str] = []
    try:
        flags, renamed = engine.names.choose_all(settings, known)
    except FlagError as exc:
        flags = settings
        problems.append(str(exc))
    problems += check_against_build(flags, known)
    extra = [str(word) for word in declared.get("extra_arguments") or []]
    problems += _check_extra(extra, flags, known)

    # Where a thing lies says nothing of what is measured: paths and ports stay out of the identity.
    named = {word: engine.names.choose(flag, known) for word, flag in engine.fill.items() if flag}
    placing = {named.get(word) for word in ("model", "served_model", "host", "port")}
    resolved = {flag: value for flag, value in sorted(flags.items()) if flag not in placing}
    if declared.get("draft_model"):
        resolved[str(named["draft_model"])] = site.places[declared["draft_model"]].identity
    if extra:
        resolved["extra_arguments"] = extra
    environment = {
        **engine.environment,
        **gpu_environment(declared.get("gpus") or []),
        **{key: str(value) for key, value in (declared.get("environment") or {}).items()},
    }
    # What the role itself says by another name is nobody's concern.
    own = {flag for flag in engine.fill.values() if flag is not None}
    return Served(
        name=name,
        engine=engine.name,
        argv=(*engine.served_command, *to_argv(flags, known), *extra),
        environment=environment,
        description={
            **_describe(name, declared, engine, site),
            "engine_build": installed.build,
            "flags": resolved,
            "visible_gpus": environment.get("CUDA_VISIBLE_DEVICES"),
        },
        problems=tuple(problems),
        renamed={said: used for said, used in renamed.items() if said not in own},
        credentials=engine.credentials,
    )


def _check_extra(
    extra: Sequence[str], flags: Mapping[str, FlagValue], known: Mapping[str, Option]
) -> list[str]:
    said = from_words(extra)
    twice = [f"the flag {flag} is set twice: once in extra_arguments" for flag in said if flag in flags]
    return twice + check_against_build(said, known)


def _describe(name: str, declared: Mapping[str, Any], engine: Engine, site: Site) -> dict[str, Any]:
    """What a client reads, beside build and flags. The key itself is not in it, but where it lies."""
    model = site.places[declared["model"]]
    draft = declared.get("draft_model")
    return {
        "schema_version": DESCRIPTION_VERSION,
        "configuration": name,
        "unit": unit_name(name),
        "url": f"http://{_EVERYWHERE.get(site.host, site.host)}:{int(declared.get('port') or site.port)}",
        "engine": engine.name,
        "model": model.name,
        "served_model": model.name,
        "model_path": model.path,
        "model_digest": model.digest,
        "draft_model": site.places[draft].name if draft else None,
        "draft_model_path": site.places[draft].path if draft else None,
        "tensor_parallelism": int(declared["tensor_parallelism"]),
        "context_tokens": int(declared["context_tokens"]),
        "adapter": engine.adapter,
        "python": engine.command[0] if engine.venv else None,
        "api_key_file": engine.credentials.get("api_key"),
    }
