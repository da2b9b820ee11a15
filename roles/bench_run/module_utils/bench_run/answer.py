"""What the runner's `plan` said, in an operator's words."""

from __future__ import annotations

from typing import Any

MOST_REASONS = 4
_LEFT = (("leave", "not ok"), ("skip", "skipped"), ("wait", "waiting"))


def summary(answer: dict[str, Any], *, check_mode: bool) -> str:
    counts, total = answer["counts"], len(answer["cells"])
    to_run, kept = counts.get("run", 0), counts.get("keep", 0)
    if kept == total:
        return f"{total} cells: all kept from before, nothing to run"
    parts = [f"{kept} kept"]
    parts += [f"{counts[key]} {words}" for key, words in _LEFT if key in counts]
    if check_mode and to_run:
        would = f"would measure {to_run}, {answer['duration']}"
        return f"{total} cells: {would}; {', '.join(parts)}{refused(answer)}"
    return f"{total} cells: {', '.join(parts)}, nothing to run"


def refused(answer: dict[str, Any]) -> str:
    """The reasons for which cells are not run, most frequent first, with a cell for each."""
    by_code: dict[str, list[dict[str, Any]]] = {}
    for each in answer["refused"]:
        by_code.setdefault(each["code"], []).append(each)
    ranked = sorted(by_code.items(), key=lambda item: -len(item[1]))[:MOST_REASONS]
    return "".join(
        f"; {len(cells)} {code} (as {cells[0]['cell']}: {cells[0]['detail']})" for code, cells in ranked
    )
