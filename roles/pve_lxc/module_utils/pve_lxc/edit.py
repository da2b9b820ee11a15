"""Change a container's file line by line: every byte outside the changed lines stays as it is."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from .conf import Config, Section, parse, split_lines
from .errors import PveLxcError


@dataclass
class Edit:
    """Wanted changes of the current configuration; line numbers are those of the file as it was read."""

    set_keys: dict[str, str] = field(default_factory=dict)
    drop_keys: list[str] = field(default_factory=list)
    add_entries: list[tuple[str, str]] = field(default_factory=list)
    drop_entries: list[int] = field(default_factory=list)
    replace_entries: dict[int, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return any((self.set_keys, self.drop_keys, self.add_entries, self.drop_entries, self.replace_entries))


class EditError(PveLxcError):
    """The result would not be what was meant; a fault of this program, caught before anything is written."""


def apply(config: Config, edit: Edit) -> str:
    """The file's text after the edit, proven by reading it again with Proxmox's rules."""
    lines = _Lines(config)
    for number, value in edit.replace_entries.items():
        lines.replace(number, f"{_entry_key(config, number)}: {value}")
    for number in edit.drop_entries:
        lines.drop(number)
    for key in edit.drop_keys:
        for number in config.main.key_lines.get(key, []):  # one left behind would count again
            lines.drop(number)
    for key, value in edit.set_keys.items():
        if key in config.main.key_lines:
            lines.replace(config.main.key_lines[key][-1], f"{key}: {value}")
        else:
            lines.insert(_place_of_key(config, key), f"{key}: {value}")
    for key, value in sorted(edit.add_entries, key=lambda entry: entry[0]):  # rules, then mounts
        lines.insert(_place_of_entry(config, key), f"{key}: {value}")
    after = str(lines)
    _prove(config, edit, after)
    return after


class _Lines:
    """The file as lines that can be replaced, dropped, or followed by new ones."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.lines = split_lines(config.text)
        self.dropped: set[int] = set()
        self.inserted: dict[int, list[str]] = defaultdict(list)

    def _end(self, number: int) -> str:
        """The line end in use around a line: its own, or that of the line before where it has none."""
        for at in (number, number - 1, 1):
            if 1 <= at <= len(self.lines) and self.lines[at - 1].endswith("\n"):
                return "\r\n" if self.lines[at - 1].endswith("\r\n") else "\n"
        return "\n"

    def replace(self, number: int, content: str) -> None:
        has_end = self.lines[number - 1].endswith("\n")
        self.lines[number - 1] = content + (self._end(number) if has_end else "")

    def drop(self, number: int) -> None:
        self.dropped.add(number)

    def insert(self, after: int, content: str) -> None:
        self.inserted[after].append(content)

    def __str__(self) -> str:
        out: list[str] = []
        for number in range(len(self.lines) + 1):
            if number and number not in self.dropped:
                out.append(self.lines[number - 1])
            for content in self.inserted.get(number, []):
                end = self._end(number)
                if out and not out[-1].endswith("\n"):
                    out[-1] += end
                out.append(content + end)
        text = self.config.text
        if text and not text.endswith("\n") and self.inserted.get(len(self.lines)):
            return "".join(out).removesuffix(self._end(len(self.lines)))  # it had no final line end before
        return "".join(out)


def _entry_key(config: Config, number: int) -> str:
    return next(entry.key for entry in config.main.entries if entry.line_no == number)


def _place_of_entry(config: Config, key: str) -> int:
    """After the last entry of its family, since LXC takes device rules in order; else after all entries."""
    family = key.rpartition(".")[0]
    own = [entry.line_no for entry in config.main.entries if entry.key.startswith(f"{family}.")]
    every = [entry.line_no for entry in config.main.entries]
    return max(own or every or _lines_of_keys(config, "") or [0])


def _place_of_key(config: Config, key: str) -> int:
    return max(_lines_of_keys(config, key.rstrip("0123456789")) or _lines_of_keys(config, "") or [0])


def _lines_of_keys(config: Config, name: str) -> list[int]:
    """The lines of `name0`, `name1`, …; of all plain keys when no name is given."""
    keys = config.main.key_lines.items()
    return [lines[-1] for key, lines in keys if not name or key.rstrip("0123456789") == name]


def _prove(config: Config, edit: Edit, after: str) -> None:
    result = parse(after)
    problems = [
        what
        for what, wrong in (
            ("the plain keys", result.main.keys != _expected_keys(config, edit)),
            ("the raw entries", not _entries_as_expected(config, edit, result)),
            ("the description", result.main.description != config.main.description),
            ("the pending changes", _content(result.pending) != _content(config.pending)),
            ("the snapshots", _contents(result) != _contents(config)),
            ("the ignored lines", [i.text for i in result.ignored] != [i.text for i in config.ignored]),
        )
        if wrong
    ]
    if problems:
        raise EditError(
            f"the edit would change more than it should: {', '.join(problems)}; nothing was written"
        )


def _expected_keys(config: Config, edit: Edit) -> dict[str, str]:
    kept = {key: value for key, value in config.main.keys.items() if key not in edit.drop_keys}
    return {**kept, **edit.set_keys}


def _entries_as_expected(config: Config, edit: Edit, result: Config) -> bool:
    kept = [
        (entry.key, edit.replace_entries.get(entry.line_no, entry.value))
        for entry in config.main.entries
        if entry.line_no not in edit.drop_entries
    ]
    found = _pairs(result.main)
    rest = iter(found)
    kept_in_order = all(pair in rest for pair in kept)
    return kept_in_order and sorted(found) == sorted(kept + edit.add_entries)


def _pairs(section: Section) -> list[tuple[str, str]]:
    return [(entry.key, entry.value) for entry in section.entries]


def _content(section: Section) -> tuple[str, dict[str, str], list[tuple[str, str]], str]:
    return section.name, section.keys, _pairs(section), section.description


def _contents(config: Config) -> list[tuple[str, tuple[str, dict[str, str], list[tuple[str, str]], str]]]:
    return [(name, _content(section)) for name, section in config.snapshots.items()]
