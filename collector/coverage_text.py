"""Coverage in words: for a terminal, as Markdown, as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from collector.formats import one_line, seconds
from collector.table import escape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collector.coverage import Coverage, Slot


def as_text(coverages: Sequence[Coverage]) -> str:
    return "\n".join(_text(coverage) for coverage in coverages)


def as_markdown(coverages: Sequence[Coverage]) -> str:
    return "\n".join(_markdown(coverage) for coverage in coverages)


def as_json(coverages: Sequence[Coverage]) -> str:
    return json.dumps([_content(coverage) for coverage in coverages], indent=1, ensure_ascii=False) + "\n"


def state(coverage: Coverage) -> str:
    """Where the campaign stands, by its own words."""
    status = coverage.campaign.status
    if status is None:
        return "state unknown: no readable status.json here"
    words = f"{status.state}: {one_line(status.message)}" if status.message else status.state
    current = status.current
    if status.state == "running" and current is not None:
        left = f", about {seconds(current.remaining_s)} left" if current.remaining_s is not None else ""
        words += f" (cell {current.position} of {current.total}: {current.cell}, {current.phase}{left})"
    return words


def reason(slot: Slot) -> str:
    """Why there is no number; a sentence where one is known."""
    return (
        one_line(": ".join(part for part in (slot.code.replace("_", " "), slot.detail) if part))
        or "no reason given"
    )


def summary(coverage: Coverage) -> str:
    others = ", ".join(f"{n} {word}" for word, n in sorted(coverage.counts.items()) if word != "ok")
    return f"{coverage.ok} of {coverage.planned} cells ok" + (f"; {others}" if others else "")


def _text(coverage: Coverage) -> str:
    lines = [f"{coverage.campaign.title}: {summary(coverage)}", f"  {state(coverage)}"]
    lines += [f"  ! {one_line(problem)}" for problem in coverage.campaign.problems]
    width = max((len(slot.planned.name) for slot in coverage.holes), default=0)
    lines += [
        f"  {slot.planned.name:<{width}}  {slot.status}: {reason(slot)}"
        if slot.code or slot.detail
        else f"  {slot.planned.name:<{width}}  {slot.status}"
        for slot in coverage.holes
    ]
    return "\n".join(lines) + "\n"


def _markdown(coverage: Coverage) -> str:
    lines = [
        f"## {escape(coverage.campaign.title)}",
        "",
        f"{summary(coverage)}. {escape(state(coverage))}",
        "",
    ]
    for slot in coverage.slots:
        mark = "x" if slot.status == "ok" else " "
        why = "" if slot.status == "ok" else f": {slot.status}"
        if slot.status != "ok" and (slot.code or slot.detail):
            why += f" ({escape(reason(slot))})"
        lines.append(f"- [{mark}] {slot.planned.name}{why}")
    lines += [f"- problem: {escape(problem)}" for problem in coverage.campaign.problems]
    return "\n".join(lines) + "\n"


def _content(coverage: Coverage) -> dict[str, object]:
    status = coverage.campaign.status
    return {
        "campaign": coverage.campaign.name,
        "node": coverage.campaign.node,
        "state": status.state if status else None,
        "message": status.message if status else None,
        "planned": coverage.planned,
        "ok": coverage.ok,
        "counts": coverage.counts,
        "problems": list(coverage.campaign.problems),
        "cells": [
            {
                "cell": slot.planned.name,
                "status": slot.status,
                "reason_code": slot.code or None,
                "reason": slot.detail or None,
            }
            for slot in coverage.slots
        ],
    }
