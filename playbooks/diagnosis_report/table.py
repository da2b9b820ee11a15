"""One table of all nodes: node, verdict, cause, proof, repair. Wraps within its columns."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

WIDTH = 118
GAP = "  "
HEADER = ("node", "verdict", "cause", "proof", "repair")
WIDEST_NODE = 16
# What's left for cause and proof is shared in this proportion: the sentence is what is read.
CAUSE_SHARE = 0.58
MOST_UNSEEN = 3
MOST_LINES = 8

Diagnosis = Mapping[str, Any]
Words = Callable[[Mapping[str, Any]], str]


def table_lines(
    diagnoses: Sequence[Diagnosis],
    missing: Sequence[Mapping[str, str]],
    *,
    proof_words: Words,
    width: int = WIDTH,
) -> list[str]:
    """The table's lines: a row a cause; `proof_words` puts a cause's evidence into words."""
    rows = [row for diagnosis in diagnoses for row in _rows(diagnosis, proof_words)]
    rows += [(one["node"], "unknown", one["why"], "", "") for one in missing]
    widths = _widths(rows, width)
    lines = _wrapped(HEADER, widths)
    lines.append("-" * len(lines[0]))
    for row in rows:
        lines += _wrapped(row, widths)
    return lines


def _rows(diagnosis: Diagnosis, proof_words: Words) -> list[tuple[str, ...]]:
    """The node's name and verdict stand only at its first cause."""
    node, verdict = str(diagnosis.get("node")), str(diagnosis.get("verdict")).replace("_", " ")
    rows: list[tuple[str, ...]] = []
    for cause in diagnosis.get("causes") or [{}]:
        rows.append((node, verdict, _named(cause), proof_words(cause.get("proof") or {}), _repair(cause)))
        node, verdict = "", ""
    return rows


def _named(cause: Mapping[str, Any]) -> str:
    """The cause's name is what documents and diagnosis.json call it; `ok` needs none."""
    name, sentence = cause.get("name"), str(cause.get("sentence", ""))
    return f"{name}: {sentence}" if name and name != "ok" else sentence


def _repair(cause: Mapping[str, Any]) -> str:
    if cause.get("repair"):
        return str(cause["repair"]).replace("_", " ")
    return "by a person" if cause.get("severity") == "needs_person" else "none"


def _widths(rows: Sequence[Sequence[str]], width: int) -> list[int]:
    def longest(column: int, most: int) -> int:
        return min(most, max(len(HEADER[column]), *(len(row[column]) for row in rows), 0))

    node, verdict, repair = longest(0, WIDEST_NODE), longest(1, 12), longest(4, 17)
    rest = width - node - verdict - repair - len(GAP) * (len(HEADER) - 1)
    # Short proofs leave their room to the sentences, and the other way round.
    proof = max(longest(3, int(rest * (1 - CAUSE_SHARE))), rest - longest(2, rest), len(HEADER[3]))
    return [node, verdict, rest - proof, proof, repair]


def _wrapped(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    columns = [_lines(name, cell, width) for name, cell, width in zip(HEADER, cells, widths, strict=True)]
    return [
        GAP.join(cell.ljust(width) for cell, width in zip(parts, widths, strict=True)).rstrip()
        for parts in zip_longest(*columns, fillvalue="")
    ]


def _lines(column: str, cell: str, width: int) -> list[str]:
    """A sentence's paths stay whole; a long proof is whole in diagnosis.json."""
    return textwrap.wrap(
        cell, width, break_on_hyphens=column == "proof", max_lines=MOST_LINES, placeholder=" …"
    ) or [""]


def remarks(diagnoses: Sequence[Diagnosis], *, change_sentences: Callable[[Any], list[str]]) -> list[str]:
    """Below the table: what changed since the snapshot, and what could not be seen."""
    lines = []
    for diagnosis in diagnoses:
        node = str(diagnosis.get("node"))
        lines += [
            f"{node}: changed since the snapshot: {one}"
            for one in change_sentences(diagnosis.get("changes") or [])
        ]
        unseen = [f"{one['what']} ({one['why']})" for one in diagnosis.get("unseen") or []]
        more = f" and {len(unseen) - MOST_UNSEEN} more" if len(unseen) > MOST_UNSEEN else ""
        if unseen:
            lines.append(f"{node}: not seen: {'; '.join(unseen[:MOST_UNSEEN])}{more}")
    return [part for line in lines for part in textwrap.wrap(line, WIDTH, subsequent_indent="  ")]
