"""Flags of an engine: reading its --help, checking settings against it, and making its command line."""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Union

from .spelling import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FlagValue = Union[bool, int, float, str, list[Any], dict[str, Any]]

# argparse indents options by 2, llama.cpp's own programs by 0; wrapped help texts start much further right.
_OPTION_LINE = re.compile(r"^ {0,6}(-[-\w].*)$")
_OPTION = re.compile(r"^(--?[A-Za-z0-9][\w-]*)(?:[ =](.+))?$")
_CHOICES = re.compile(r"^\{([^{}]+)\}$")
_NAME = re.compile(r"^[A-Za-z0-9][\w-]*$")
_NUMBER = re.compile(r"^-\d+(\.\d+)?$")


class FlagError(ValueError):
    """A setting cannot be turned into a command line."""


@dataclass(frozen=True)
class Option:
    """One flag as a build's --help shows it; the name is without its dashes."""

    name: str
    takes_value: bool
    choices: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "choices": list(self.choices)}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Option:
        return cls(str(raw["name"]), bool(raw["takes_value"]), tuple(raw["choices"]))


def parse_help(text: str) -> dict[str, Option]:
    """The long options of a --help text.

    Only lines that declare an option count: a flag that a help text merely mentions ("removed, use --other")
    is not one that the build accepts.
    """
    options: dict[str, Option] = {}
    for line in text.splitlines():
        declared = _OPTION_LINE.match(line)
        if declared is None:
            continue
        # llama.cpp aligns the names ("-c,    --ctx-size N"), argparse doesn't ("--ctx-size N, -c N").
        invocation = re.split(r"\s{2,}", re.sub(r",\s+", ", ", declared.group(1)), maxsplit=1)[0]
        parts = [_OPTION.match(part.strip()) for part in invocation.split(", ")]
        found = [part for part in parts if part is not None]
        # Python 3.13 writes the placeholder only once, behind the last name.
        placeholder = next((part.group(2) for part in reversed(found) if part.group(2)), None)
        choices = _CHOICES.match(placeholder) if placeholder else None
        for part in found:
            if part.group(1).startswith("--"):
                name = part.group(1)[2:]
                options[name] = Option(
                    name=name,
                    takes_value=placeholder is not None,
                    choices=tuple(choices.group(1).split(",")) if choices else (),
                )
    return options


def from_words(words: Sequence[str]) -> dict[str, FlagValue]:
    """The flags and values of a command line's words, for a check; its first word must be a flag."""
    found: dict[str, list[str]] = {}
    values: list[str] = []
    for word in words:
        if word.startswith("--"):
            flag, equals, value = word[2:].partition("=")
            values = found.setdefault(flag, [])
            values += [value] if equals else []
        else:
            values.append(word)
    return {flag: given[0] if len(given) == 1 else list(given) or True for flag, given in found.items()}


def check_value(name: str, value: object) -> str | None:
    """What is wrong with a flag's name or value in itself, without knowing the build."""
    texts = value if isinstance(value, list) else [value]
    problem = None
    if name.startswith("-"):
        problem = f"write the name without dashes in front: {name.lstrip('-')}"
    elif not _NAME.fullmatch(name):
        problem = "a name has letters, digits, - and _"
    elif value is None:
        problem = "has no value; write true for a flag without one, or remove the line"
    elif not texts:
        problem = "an empty list; give values or remove the line"
    elif isinstance(value, list) and not all(isinstance(each, (bool, int, float, str)) for each in texts):
        problem = "a list may hold numbers and texts only"
    elif not isinstance(value, (bool, int, float, str, list, dict)):
        problem = f"a {type(value).__name__} cannot be put on a command line"
    elif any(isinstance(each, str) and (not each or "\n" in each or "\0" in each) for each in texts):
        problem = "an empty text, or one with a line break, cannot be put on a command line"
    return None if problem is None else f"flag {name}: {problem}"


def check_against_build(flags: Mapping[str, FlagValue], known: Mapping[str, Option]) -> list[str]:
    """What the installed build would refuse, in one sentence each, with the nearest names it does know."""
    problems: list[str] = []
    for name in sorted(flags):
        value = flags[name]
        option = known.get(name)
        if option is None:
            near = difflib.get_close_matches(name, sorted(known), n=3, cutoff=0.6)
            hint = (
                f"nearest known: {', '.join('--' + each for each in near)}"
                if near
                else "nothing similar is known"
            )
            problems.append(f"--{name} is unknown to this build ({hint})")
        elif isinstance(value, bool):
            if option.takes_value and value:
                problems.append(f"--{name} needs a value, but is set to true")
        elif not option.takes_value:
            problems.append(f"--{name} takes no value, but is set to {value!r}: write true or false")
        elif option.choices and not isinstance(value, dict):
            problems += [
                f"--{name} {each}: not one of {', '.join(option.choices)}{nearest(str(each), option.choices)}"
                for each in (value if isinstance(value, list) else [value])
                if str(each) not in option.choices
            ]
    return problems


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return json.dumps(value, sort_keys=True, separators=(",", ":"))
    return str(value)


def to_argv(flags: Mapping[str, FlagValue], known: Mapping[str, Option]) -> list[str]:
    """The command line of these settings, sorted by name, so that equal settings give equal units.

    True is the bare flag. False is `--no-<flag>` where the build has that, and nothing otherwise.
    """
    argv: list[str] = []
    for name in sorted(flags):
        value = flags[name]
        if value is False:
            if f"no-{name}" in known:
                argv.append(f"--no-{name}")
        elif value is True:
            argv.append(f"--{name}")
        elif isinstance(value, list):
            argv += [f"--{name}", *(_text(each) for each in value)]
        else:
            text = _text(value)
            # argparse reads a separate word that starts with a dash as the next flag, unless it is a number.
            if text.startswith("-") and not _NUMBER.fullmatch(text):
                argv.append(f"--{name}={text}")
            else:
                argv += [f"--{name}", text]
    return argv
