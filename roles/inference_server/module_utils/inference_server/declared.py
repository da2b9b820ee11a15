"""What is wrong with a configuration that can be known without a host."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from .credentials import SHOWN, shown_secret
from .flags import check_value, from_words
from .gpus import check_declared
from .spelling import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .engines import Engine

NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_-]{0,79}$")
_REQUIRED = ("engine", "model", "tensor_parallelism", "context_tokens")
_OPTIONAL = ("flags", "extra_arguments", "draft_model", "port", "environment", "gpus")
_PORTS = range(1024, 65536)


def check_configuration(
    name: str, declared: Mapping[str, Any], engines: Mapping[str, Engine], models: Sequence[str]
) -> list[str]:
    """Every problem, one sentence each."""
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
    found = [
        *_check_numbers(declared, engine),
        *_check_models(declared, engine, models),
        *_check_flags(declared, engine),
        *_check_extra(declared, engine),
        *_check_environment(declared),
    ]
    return [f"{where}: {problem}" for problem in found]


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _check_numbers(declared: Mapping[str, Any], engine: Engine) -> list[str]:
    problems = [
        f"{key} must be a whole number from 1, not {declared[key]!r}"
        for key in ("tensor_parallelism", "context_tokens")
        if not _is_count(declared[key])
    ]
    if not problems and engine.fill["tensor_parallelism"] is None and declared["tensor_parallelism"] != 1:
        problems.append(f"tensor_parallelism must be 1: the engine {engine.name} has no such setting")
    port = declared.get("port")
    if port is not None and (not _is_count(port) or port not in _PORTS):
        problems.append(f"port must be 1024 to 65535, not {port!r}")
    if declared.get("gpus") is not None and _is_count(declared["tensor_parallelism"]):
        wrong = check_declared(declared["gpus"], declared["tensor_parallelism"])
        problems += [wrong] if wrong else []
    return problems


def _check_models(declared: Mapping[str, Any], engine: Engine, models: Sequence[str]) -> list[str]:
    problems = []
    if declared.get("draft_model") and engine.fill["draft_model"] is None:
        problems.append(f"the engine {engine.name} has no setting for a draft_model")
    problems += [
        f"its {key} {declared[key]} is not among the models of this node"
        f"{nearest(str(declared[key]), list(models))}; known: {', '.join(sorted(models)) or 'none'}"
        for key in ("model", "draft_model")
        if declared.get(key) is not None and declared[key] not in models
    ]
    return problems


def _check_flags(declared: Mapping[str, Any], engine: Engine) -> list[str]:
    flags = declared.get("flags") or {}
    if not isinstance(flags, dict):
        return ["flags must be a mapping of flag to value"]
    found = [check_value(str(flag), value) for flag, value in flags.items()]
    found += [_reserved(str(flag), engine) for flag in flags]
    return [problem for problem in found if problem is not None]


def _reserved(flag: str, engine: Engine) -> str | None:
    """Why a flag isn't the configuration's to set; None where it is."""
    if flag in engine.secret_flags:
        return f"flag {flag}: {SHOWN}"
    # What the role fills in has one place to be said; a flag of the same name would win silently.
    for word, filled in engine.fill.items():
        if filled is not None and flag in engine.names.all_of(filled):
            say = word if word in _REQUIRED + _OPTIONAL else f"nothing: the role sets the {word}"
            return f"flag {flag} is filled in by the role; say {say} instead"
    return None


def _check_extra(declared: Mapping[str, Any], engine: Engine) -> list[str]:
    extra = declared.get("extra_arguments")
    if extra is None:
        return []
    if not isinstance(extra, list) or not all(
        isinstance(each, str) and each and not {"\n", "\0"} & set(each) for each in extra
    ):
        return ["extra_arguments must be a list of texts, each a word of the command line"]
    if extra and not extra[0].startswith("--"):
        return [f"extra_arguments must begin with a flag, not {extra[0]}"]
    found = [_reserved(flag, engine) for flag in from_words(extra)]
    return [problem for problem in found if problem is not None]


def _check_environment(declared: Mapping[str, Any]) -> list[str]:
    environment = declared.get("environment") or {}
    if not isinstance(environment, dict):
        return ["environment must be a mapping of variable to value"]
    secret = shown_secret(environment)
    return [f"environment {secret}: {SHOWN}"] if secret else []
