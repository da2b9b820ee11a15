"""How long the cells to run will take, by how long such cells took before; or else unknown, which is said."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from bench_runner.cells import traffic
from bench_runner.fingerprint import canonical

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bench_runner.decide import Task
    from bench_runner.earlier import Earlier, PastCell
    from bench_runner.plan import Plan

# How far a forecast from another cell may be off, either way; a measured one varies by this much.
SPREAD_SAME, SPREAD_NEAR = 1.1, 2.0
# Parts of an identity that may differ between two configurations of one engine, and the rest, which must not.
_FLAGS, _PARALLELISM = "flags", "tensor_parallelism"
_MUST_AGREE = ("engine", "model", "gpu_model")


class Forecast(Struct, frozen=True, kw_only=True):
    """Seconds for one cell or load, and by what: `same`, `near` (which is named), or `unknown`."""

    by: str
    seconds: float | None = None
    low_s: float = 0.0
    high_s: float = 0.0
    like: str | None = None


class Total(Struct, frozen=True, kw_only=True):
    """Of everything that is to run: cells and the loads between them."""

    seconds: float
    low_s: float
    high_s: float
    known: int
    unknown: int
    loads: int
    unknown_loads: int


UNKNOWN = Forecast(by="unknown")


class Forecaster:
    def __init__(self, plan: Plan, earlier: Earlier) -> None:
        self.plan = plan
        self.loads_s = earlier.loads_s
        self._same: dict[str, list[PastCell]] = defaultdict(list)
        self._served: dict[
            bytes, dict[str, list[PastCell]]
        ] = {}  # cells by how they were served, by workload
        for cell in earlier.cells:
            self._same[cell.content_hash].append(cell)
            served = self._served.setdefault(_served_as(cell.fingerprint.identity), defaultdict(list))
            served[cell.workload].append(cell)
        self._nearest: dict[tuple[str, str, int], Forecast] = {}
        self._models: dict[tuple[str, str], list[PastCell]] = {}

    def cell(self, task: Task) -> Forecast:
        same = self._same.get(task.content_hash)
        if same:
            times = [cell.duration_s for cell in same]
            low, high = min(times) / SPREAD_SAME, max(times) * SPREAD_SAME
            return Forecast(by="same", seconds=sum(times) / len(times), low_s=low, high_s=high)
        key = (task.cell.configuration, task.cell.workload, task.cell.point)
        if key not in self._nearest:
            self._nearest[key] = self._near(task)
        return self._nearest[key]

    def load(self, configuration: str) -> Forecast:
        own = self.loads_s.get(configuration)
        times = own or [seconds for each in self.loads_s.values() for seconds in each]
        if not times:
            return UNKNOWN
        mean, spread = sum(times) / len(times), SPREAD_SAME if own else SPREAD_NEAR
        return Forecast(
            by="same" if own else "near",
            seconds=mean,
            low_s=min(times) / spread,
            high_s=max(times) * spread,
            like=None if own else "other configurations",
        )

    def total(self, tasks: Sequence[Task]) -> Total:
        to_run = [task for task in tasks if task.decision.action == "run"]
        cells = [self.cell(task) for task in to_run]
        loads = [self.load(name) for name in _server_starts(to_run)]
        known = [each for each in (*cells, *loads) if each.seconds is not None]
        return Total(
            seconds=sum(each.seconds or 0.0 for each in known),
            low_s=sum(each.low_s for each in known),
            high_s=sum(each.high_s for each in known),
            known=sum(each.seconds is not None for each in cells),
            unknown=sum(each.seconds is None for each in cells),
            loads=len(loads),
            unknown_loads=sum(each.seconds is None for each in loads),
        )

    def _near(self, task: Task) -> Forecast:
        """By the nearest configuration that was measured with this workload, scaled to this cell's work."""
        models = self._models_of(task)
        if not models:
            return UNKNOWN
        wanted = self._work(task.cell.workload, task.cell.point)
        cell = min(models, key=lambda each: abs(math.log2(wanted / _past_work(each))))
        seconds = cell.duration_s * wanted / _past_work(cell)
        return Forecast(
            by="near",
            seconds=seconds,
            low_s=seconds / SPREAD_NEAR,
            high_s=seconds * SPREAD_NEAR,
            like=f"{cell.configuration} {cell.workload}/{cell.point}",
        )

    def _models_of(self, task: Task) -> list[PastCell]:
        """Cells of the nearest configuration with this workload."""
        key = (task.cell.configuration, task.cell.workload)
        if key not in self._models:
            candidates = [
                served[task.cell.workload] for served in self._served.values() if task.cell.workload in served
            ]
            ranked = [
                (distance, number)
                for number, cells in enumerate(candidates)
                if (distance := _distance(task.fingerprint.identity, cells[0].fingerprint.identity))
                is not None
            ]
            self._models[key] = candidates[min(ranked)[1]] if ranked else []
        return self._models[key]

    def _work(self, workload: str, point: int) -> float:
        sent = traffic(self.plan, workload, point)
        return _steps(
            sent.conversations, sent.clients, sent.turns, sent.output_tokens, sent.first_prompt_tokens
        )


def _served_as(identity: dict[str, Any]) -> bytes:
    return canonical({name: value for name, value in identity.items() if name != "workload"})


def _steps(conversations: int, clients: int, turns: int, output_tokens: int, prompt_tokens: int) -> float:
    """What takes the time: the tokens that come one after the other, and a little for the prompt's."""
    return math.ceil(conversations / clients) * turns * (output_tokens + prompt_tokens / 50)


def _past_work(cell: PastCell) -> float:
    """The same of a measured cell, from its own workload's definition."""
    shape = cell.fingerprint.identity.get("workload") or {}

    def of(name: str, otherwise: int = 1) -> int:
        return int(shape.get(name, otherwise))

    if cell.workload == "code":
        return _steps(of("requests"), of("concurrency"), 1, cell.point, of("prompt_tokens"))
    if cell.workload == "context":
        return _steps(of("requests"), of("concurrency"), 1, of("output_tokens"), cell.point)
    if cell.workload == "concurrency":
        return _steps(of("requests_per_client"), 1, 1, of("output_tokens"), of("prompt_tokens"))
    return _steps(1, 1, cell.point, of("output_tokens"), of("first_prompt_tokens"))


def _distance(one: dict[str, Any], other: dict[str, Any]) -> float | None:
    """How unlike two configurations are; None where nothing can be said of one by the other."""
    if any(one.get(key) != other.get(key) for key in _MUST_AGREE):
        return None
    parallel = [max(int(each.get(_PARALLELISM) or 1), 1) for each in (one, other)]
    flags, others = one.get(_FLAGS) or {}, other.get(_FLAGS) or {}
    differing = sum(flags.get(name) != others.get(name) for name in {*flags, *others})
    return float(abs(math.log2(parallel[0] / parallel[1])) + differing)


def _server_starts(tasks: Iterable[Task]) -> list[str]:
    """The configurations whose server is started, in order: one after the other, never two at once."""
    starts: list[str] = []
    for task in tasks:
        if not starts or starts[-1] != task.cell.configuration:
            starts.append(task.cell.configuration)
    return starts
