"""Take results in from a folder: a backup, another machine's results, or a node's own folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from collector.campaigns import FOLDER_NAME, read_status
from collector.door import NotOursError, UnreadableError
from collector.errors import NoResultsError
from collector.fetch import NodePull, describe
from collector.intake import Listed, known_files, take_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from collector.layout import Layout

MARKS = ("journal.jsonl", "status.json", "plan.yml")


def copy_from(source: Path, layout: Layout, *, on_progress: Callable[[str, str], None]) -> list[NodePull]:
    """Take in every campaign below the folder, as ``pull`` does from nodes."""
    if not source.is_dir():
        raise NoResultsError(f"{source}: no such folder to take results from")
    nodes: dict[str, NodePull] = {}
    for node, folder in _campaigns(source):
        listed = {
            path: Listed((folder / path).stat().st_size, digest, folder / path)
            for path, digest in known_files(folder).items()
        }
        nodes.setdefault(node, NodePull(node)).intakes.append(take_in(layout, node, folder.name, listed))
    for node, pulled in nodes.items():
        on_progress(node, describe(pulled))
    return sorted(nodes.values(), key=lambda pulled: pulled.node)


def _campaigns(source: Path) -> list[tuple[str, Path]]:
    """Node and folder of each campaign, in a tree of campaigns or of nodes with campaigns."""
    top = source / "raw" if (source / "raw").is_dir() else source
    found: list[tuple[str, Path]] = []
    for folder in sorted(path for path in top.iterdir() if path.is_dir()):
        if _is_campaign(folder):
            found.append((_node_of(folder), folder))
        else:
            below = sorted(path for path in folder.iterdir() if path.is_dir())
            found += [(folder.name, campaign) for campaign in below if _is_campaign(campaign)]
    if _is_campaign(source):
        found = [(_node_of(source), source)]
    found = [(node, folder) for node, folder in found if FOLDER_NAME.fullmatch(folder.name)]
    if not found:
        raise NoResultsError(
            f"{source}: no campaign there; needed is <campaign>/ or <node>/<campaign>/ with one of "
            f"{', '.join(MARKS)}"
        )
    return found


def _is_campaign(folder: Path) -> bool:
    return any((folder / mark).is_file() for mark in MARKS)


def _node_of(folder: Path) -> str:
    try:
        node = read_status(folder / "status.json").node
    except (FileNotFoundError, NotOursError, UnreadableError) as exc:
        raise NoResultsError(
            f"{folder}: no status.json there says which node it is of ({exc}); "
            "put it below a folder with the node's name"
        ) from exc
    if not FOLDER_NAME.fullmatch(node):
        raise NoResultsError(f"{folder}: the node's name {node!r} can't be a folder's name")
    return node
