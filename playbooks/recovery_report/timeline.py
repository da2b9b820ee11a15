"""Where the time of a run went, by stage."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

# What a stage can wait for that is not Ansible's own work; the keys of a result's `waited_s`.
WAITED_FOR = ("boot", "copy", "engine_load", "measure")


@dataclass
class Stage:
    """One stage of a run, from its first play's start to the next stage's start."""

    name: str
    started_s: float
    ended_s: float | None = None
    # Hosts wait side by side, so a task costs what its slowest host waited: (task, kind) -> seconds.
    waited: dict[tuple[str, str], float] = field(default_factory=dict)

    def seconds(self, now_s: float) -> float:
        return (now_s if self.ended_s is None else self.ended_s) - self.started_s

    def waited_s(self) -> dict[str, float]:
        totals = dict.fromkeys(WAITED_FOR, 0.0)
        for (_, kind), seconds in self.waited.items():
            totals[kind] += seconds
        return {kind: seconds for kind, seconds in totals.items() if seconds > 0}


class Timeline:
    """The stages of a run in order. A stage that is entered twice counts once, its times added."""

    def __init__(self) -> None:
        self._stages: list[Stage] = []

    def enter(self, name: str, now_s: float) -> bool:
        """Begin a stage unless it is the current one; true when it is new."""
        if self._stages and self._stages[-1].ended_s is None:
            if self._stages[-1].name == name:
                return False
            self._stages[-1].ended_s = now_s
        self._stages.append(Stage(name, now_s))
        return True

    def close(self, now_s: float) -> None:
        if self._stages and self._stages[-1].ended_s is None:
            self._stages[-1].ended_s = now_s

    def waited(self, task_id: str, waited_s: Mapping[str, Any]) -> None:
        """Note what one host's task waited for; an unknown kind is a mistake of the task's author."""
        for kind, seconds in waited_s.items():
            if kind not in WAITED_FOR:
                raise ValueError(f"waited_s has {kind!r}; a task can wait for {', '.join(WAITED_FOR)}")
            if self._stages:
                key = (task_id, kind)
                stage = self._stages[-1]
                stage.waited[key] = max(stage.waited.get(key, 0.0), float(seconds))

    def rows(self, now_s: float) -> list[dict[str, Any]]:
        """A row a stage: `{stage, seconds, ansible_s, waited_s: {kind: seconds}}`."""
        rows: dict[str, dict[str, Any]] = {}
        for stage in self._stages:
            row = rows.setdefault(stage.name, {"stage": stage.name, "seconds": 0.0, "waited_s": {}})
            row["seconds"] += stage.seconds(now_s)
            for kind, seconds in stage.waited_s().items():
                row["waited_s"][kind] = row["waited_s"].get(kind, 0.0) + seconds
        return [
            {
                "stage": row["stage"],
                "seconds": round(row["seconds"], 2),
                # Rounding of clocks on two machines can put the wait a little above the whole.
                "ansible_s": round(max(0.0, row["seconds"] - sum(row["waited_s"].values())), 2),
                "waited_s": {kind: round(seconds, 2) for kind, seconds in row["waited_s"].items()},
            }
            for row in rows.values()
        ]
