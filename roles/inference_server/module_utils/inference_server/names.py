"""The names that flags have in a build: ours for those that forks name differently, and renamed ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .flags import FlagError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .flags import FlagValue, Option


@dataclass(frozen=True)
class Names:
    """How an engine's flags are called.

    `aliases`: a word of our settings -> the flags it may be; the first one that the build knows is taken, and
    an empty list means that the build needs no such flag. `renames`: all names of one flag, the newest first;
    any of them may be said, and the build gets the one it knows.
    """

    aliases: Mapping[str, Sequence[str]] = field(default_factory=dict)
    renames: Sequence[Sequence[str]] = ()

    def all_of(self, name: str) -> Sequence[str]:
        """All names of one flag, in old and new builds."""
        return next((group for group in self.renames if name in group), [name])

    def choose(self, name: str, known: Mapping[str, Option]) -> str | None:
        """The name that this build has for a flag of our settings; None where it needs no such flag."""
        if name in self.aliases:
            candidates = self.aliases[name]
            if not candidates:
                return None
        else:
            # One name for one thing, though a build may know several: equal settings are one measurement.
            candidates = self.all_of(name)
        # Where none is known, the name that was said is the one to complain about.
        complaint = self.aliases[name][0] if name in self.aliases else name
        return next((each for each in candidates if each in known), complaint)

    def choose_all(
        self, flags: Mapping[str, FlagValue], known: Mapping[str, Option]
    ) -> tuple[dict[str, FlagValue], dict[str, str]]:
        """Flags by the names of this build, without those it needs not; what was renamed: said -> used."""
        chosen: dict[str, FlagValue] = {}
        renamed: dict[str, str] = {}
        for name, value in flags.items():
            target = self.choose(name, known)
            if target is None:
                continue
            if target in chosen:
                raise FlagError(f"the flag {target} is set twice: by its own name and as {name}")
            chosen[target] = value
            if target != name and name not in self.aliases:
                renamed[name] = target
        return chosen, renamed
