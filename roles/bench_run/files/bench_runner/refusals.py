"""What can be known to be impossible before a server runs, each with its reason and the way out."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench_runner.cells import why_not_fitting
from bench_runner.journal import Reason
from bench_runner.quirks.expression import flag_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench_runner.cells import Cell
    from bench_runner.deployment import Deployment
    from bench_runner.plan import Plan

# A verify step writes its drafts into the context beyond the last token; a tree as many as its budget.
_DRAFT_FLAGS = ("num-draft-tokens", "ddtree-budget", "draft-n-max", "draft-max")
_ALGORITHM_FLAGS = ("speculative-algorithm", "spec-type")
_NEED_A_DRAFT = ("DFLASH", "DDTREE", "EAGLE3", "STANDALONE", "DRAFT-SIMPLE")
_DRAFT_MODEL_FLAGS = ("speculative-draft-model-path", "model-draft")
_GIB = 2**30


class Site:
    """The node's files and room. `staged=False`: the models are to be staged still, so none is missed."""

    def __init__(self, *, staged: bool = True, model_bytes: Mapping[str, int] | None = None) -> None:
        self.staged = staged
        self.model_bytes = model_bytes or {}
        self._rooms: dict[Path, int | None] = {}

    def lacks(self, path: Path) -> bool:
        return self.staged and not path.exists()

    def room_bytes(self, path: Path) -> int | None:
        """The size of the filesystem in which `path` is, or would be."""
        while not path.exists() and path != path.parent:
            path = path.parent
        if path not in self._rooms:
            try:
                found = os.statvfs(path)
            except OSError:
                self._rooms[path] = None
            else:
                self._rooms[path] = found.f_frsize * found.f_blocks
        return self._rooms[path]


def cell_refusal(plan: Plan, cell: Cell, deployment: Deployment) -> Reason | None:
    reserve = draft_reserve(deployment.flags)
    unfit = why_not_fitting(plan, cell, deployment.context_tokens, draft_tokens=reserve)
    return Reason("does_not_fit", unfit) if unfit else None


def configuration_refusal(deployment: Deployment, facts: Mapping[str, Any], site: Site) -> Reason | None:
    """What keeps all cells of a configuration from running."""
    gpus = facts.get("gpu_count")
    wanted = deployment.tensor_parallelism
    # An engine on the CPU has a tensor parallelism of 1 as well.
    if isinstance(gpus, int) and wanted > max(gpus, 1):
        return Reason(
            "too_few_gpus", f"tensor parallelism {wanted} needs {wanted} GPUs, this node has {gpus}"
        )
    return _draft_refusal(deployment, site) or _room_refusal(deployment, site)


def draft_reserve(flags: Mapping[str, Any]) -> int:
    """Tokens that speculation may write beyond the last one."""
    if not _algorithm(flags):
        return 0
    return max((number for name in _DRAFT_FLAGS if (number := _number(flag_value(flags, name)))), default=0)


def draft_model(deployment: Deployment) -> tuple[str, Path | None] | None:
    """The draft model's name and folder; descriptions name it as `name@digest`, beside the model."""
    value = next(
        (found for name in _DRAFT_MODEL_FLAGS if (found := deployment.flags.get(name)) is not None), None
    )
    if value is None:
        return None
    name = str(value).partition("@")[0]
    if deployment.draft_model_path:
        return name, Path(deployment.draft_model_path)
    if name.startswith("/"):
        return Path(name).name, Path(name)
    return name, Path(deployment.model_path).parent / name if deployment.model_path else None


def _draft_refusal(deployment: Deployment, site: Site) -> Reason | None:
    draft = draft_model(deployment)
    algorithm = _algorithm(deployment.flags)
    if draft is None:
        if algorithm.upper() in _NEED_A_DRAFT:
            return Reason(
                "draft_model_missing", f"{algorithm} needs a draft model, and none is named (draft_model)"
            )
        return None
    name, path = draft
    if path is not None and site.lacks(path):
        return Reason("draft_model_missing", f"the draft model {name} is not at {path}: stage it (stage.yml)")
    return None


def _room_refusal(deployment: Deployment, site: Site) -> Reason | None:
    """Whether the models could ever lie where they are wanted, by their sizes when they were staged last."""
    if deployment.model_path is None or Path(deployment.model_path).exists():
        return None
    draft = draft_model(deployment)
    names = dict.fromkeys([deployment.model, *([draft[0]] if draft else [])])
    needed = sum(site.model_bytes.get(name, 0) for name in names)
    folder = Path(deployment.model_path).parent
    room = site.room_bytes(folder)
    if room is None or needed <= room:
        return None
    return Reason(
        "shm_too_small",
        f"{' and '.join(names)} need {needed / _GIB:.1f} GiB, {folder} holds {room / _GIB:.1f} GiB at most",
    )


def _algorithm(flags: Mapping[str, Any]) -> str:
    for name in _ALGORITHM_FLAGS:
        value = flags.get(name)
        if value and str(value).lower() != "none":
            return str(value)
    return ""


def _number(value: object) -> int:
    try:
        return int(str(value))
    except ValueError:
        return 0
