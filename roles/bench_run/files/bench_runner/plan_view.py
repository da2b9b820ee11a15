"""What `plan` says: each cell with what becomes of it, how long, and why; for a terminal and for programs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench_runner.campaign import Look
    from bench_runner.decide import Task
    from bench_runner.forecast import Forecast, Forecaster, Total

_DONE_WORDS = {"run": "to run", "keep": "kept", "leave": "left", "skip": "skipped", "wait": "waiting"}
_SAME = "="
_NEAR = "~"
_MINUTE_S, _HOUR_S = 60, 3600


class View(Struct, frozen=True, kw_only=True):
    look: Look
    forecasts: dict[str, Forecast]
    total: Total
    counts: dict[str, int]


def view(look: Look, forecaster: Forecaster) -> View:
    to_run = [task for task in look.tasks if task.decision.action == "run"]
    return View(
        look=look,
        forecasts={task.cell.name: forecaster.cell(task) for task in to_run},
        total=forecaster.total(look.tasks),
        counts=dict(Counter(task.decision.action for task in look.tasks)),
    )


def as_json(seen: View) -> dict[str, Any]:
    """For programs; `expected_s` is null unless each part of it is known."""
    total = seen.total
    skips = [task for task in seen.look.tasks if task.decision.action == "skip"]
    return {
        "campaign": seen.look.prepared.plan.name,
        "cells": [_cell(task, seen.forecasts.get(task.cell.name)) for task in seen.look.tasks],
        "counts": seen.counts,
        "new_skips": sum(not task.decision.recorded for task in skips),
        "refused": [
            {"cell": task.cell.name, "code": reason.code, "detail": reason.detail}
            for task in skips
            for reason in task.decision.reasons[:1]
        ],
        "expected_s": round(total.seconds, 1) if not (total.unknown or total.unknown_loads) else None,
        "forecast": msgspec.to_builtins(total),
        "duration": duration_words(total),
    }


def as_table(seen: View) -> Iterator[str]:
    """Lines for a terminal. Cells that fare alike for one reason share a line, with their points."""
    plan, node = seen.look.prepared.plan, seen.look.prepared.environment.node
    yield f"Campaign {plan.name} on {node}: {len(seen.look.tasks)} cells"
    rows = [["", "cell", "", "time", "why"]]
    rows += [_row(task, seen.forecasts.get(task.cell.name)) for task in seen.look.tasks]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in rows:
        first = "  ".join(
            text.rjust(width) if column in {0, 3} else text.ljust(width)
            for column, (text, width) in enumerate(zip(row, widths))
        )
        yield f"{first}  {row[4]}".rstrip()
    yield ""
    yield f"{_SAME} measured before   {_NEAR} by the nearest that was measured   ? nothing like it was"
    yield from _reasons(seen)
    actions = ", ".join(f"{number} {_DONE_WORDS[action]}" for action, number in seen.counts.items())
    yield f"{len(seen.look.tasks)} cells: {actions}; {duration_words(seen.total)}"


def duration_words(total: Total) -> str:
    if not total.known + total.unknown:
        return "nothing to measure"
    if not total.known:
        return "how long is not known: nothing like it was measured on this node"
    words = f"about {span(total.seconds)} ({span(total.low_s)} to {span(total.high_s)})"
    if total.loads > total.unknown_loads:
        words += f" with {_counted(total.loads - total.unknown_loads, 'load')} of a server"
    unknown = [_counted(total.unknown, "cell")] if total.unknown else []
    unknown += [_counted(total.unknown_loads, "load")] if total.unknown_loads else []
    return words + (f", and {' and '.join(unknown)} of unknown length" if unknown else "")


def span(seconds: float) -> str:
    if seconds < 2 * _MINUTE_S:
        return f"{seconds:.0f} s"
    if seconds < 2 * _HOUR_S:
        return f"{seconds / _MINUTE_S:.0f} min"
    return f"{seconds / _HOUR_S:.1f} h"


def _cell(task: Task, forecast: Forecast | None) -> dict[str, Any]:
    decision = task.decision
    return {
        "cell": task.cell.name,
        "action": decision.action,
        "why": decision.why,
        "code": decision.reasons[0].code if decision.reasons else None,
        **({"probes": decision.probes} if decision.probes else {}),
        **({"warning": decision.warning} if decision.warning else {}),
        **({"expected": msgspec.to_builtins(forecast)} if forecast else {}),
    }


def _row(task: Task, forecast: Forecast | None) -> list[str]:
    decision = task.decision
    why = decision.why
    if decision.probes:
        why += " (this cell tries it first)"
    if decision.warning:
        why += f"; warning: {decision.warning}"
    if forecast and forecast.like:
        why += f"; time by {forecast.like}"
    return [str(task.position), task.cell.title, decision.action, _time(forecast), why]


def _time(forecast: Forecast | None) -> str:
    if forecast is None:
        return ""
    if forecast.seconds is None:
        return "?"
    return f"{_SAME if forecast.by == 'same' else _NEAR} {span(forecast.seconds)}"


def _reasons(seen: View) -> Iterator[str]:
    """What is refused before it runs, by its kind."""
    codes = Counter(
        task.decision.reasons[0].code
        for task in seen.look.tasks
        if task.decision.action == "skip" and task.decision.reasons
    )
    if codes:
        yield "refused: " + ", ".join(f"{number} {code}" for code, number in codes.most_common())


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
