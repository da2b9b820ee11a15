"""In which file and line each key of a variable stands, as Ansible remembers it of what it has loaded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

try:
    # Ansible's own messages are made with it, and it has no public name. Without it, lines are not told.
    from ansible._internal._datatag._tags import Origin
except ImportError:
    Origin = None

if TYPE_CHECKING:
    from collections.abc import Iterator


def places(value: Any, *, project: Path) -> dict[str, str]:  # noqa: ANN401 - any variable
    """Path such as `workloads.code.points[1]` -> `group_vars/fleet/plans.yml:33`, where that is known."""
    return dict(_walk(value, "", project)) if Origin is not None else {}


def _walk(value: Any, path: str, project: Path) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - any variable
    if isinstance(value, dict):
        for key, inner in value.items():
            where = f"{path}.{key}" if path else str(key)
            yield from _place(key, where, project)
            yield from _walk(inner, where, project)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            where = f"{path}[{index}]"
            yield from _place(inner, where, project)
            yield from _walk(inner, where, project)


def _place(tagged: Any, where: str, project: Path) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - any value
    origin = Origin.get_tag(tagged)
    if origin is None or not origin.path or not origin.line_num:
        return
    file = Path(origin.path).resolve()  # not by the link through which Ansible found it
    shown = file.relative_to(project) if file.is_relative_to(project) else file
    yield where, f"{shown}:{origin.line_num}"
