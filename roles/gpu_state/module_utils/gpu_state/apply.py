"""Set what differs, one call for the GPUs with the same value, and prove it by what the driver says then.

Runs on hosts: standard library and Python 3.9 only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Callable

from .declared import UNLOCKED
from .plan import LOCKS, Step, confirmed, locked_after, predicted, unlike
from .smi import Smi, refusal
from .words import NAMES, value_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .plan import Job, Locked
    from .readings import Gpu


@dataclass(frozen=True)
class Applied:
    """The GPUs as they are now, what is locked, the steps that came true, and what did not."""

    gpus: list[Gpu]
    locked: dict[str, dict[str, Any]]
    done: list[Step]
    problems: list[str]

    @classmethod
    def foreseen(cls, job: Job) -> Applied:
        """What check mode says."""
        todo = job.steps()
        return cls(predicted(job.gpus, todo), locked_after(job.locked, todo), todo, [])


def apply_steps(smi: Smi, job: Job, save: Callable[[dict[str, dict[str, Any]]], None]) -> Applied:
    """A step that fails does not keep the others from being made: each is for the better."""
    todo = job.steps()
    if not todo:
        return Applied(list(job.gpus), locked_after(job.locked, []), [], [])
    said: dict[tuple[str, str], str] = {}
    sure: list[Step] = []
    for step in todo:
        status, output = smi.apply(step.arguments, [gpu.pci for gpu in step.gpus])
        lines = refusal(status, output)
        said.update({(step.setting, gpu.uuid): _about(gpu, lines) for gpu in step.gpus if lines})
        if step.setting in LOCKS:
            sure.append(_locked(step, lines, output, said))
    now_locked = locked_after(_without(job.locked, todo), sure)
    if now_locked != locked_after(job.locked, []):
        save(now_locked)
    after = smi.gpus() if any(step.setting not in LOCKS for step in todo) else list(job.gpus)
    missed = unlike(after, job.wanted, now_locked)
    problems = [
        _problem(gpu, setting, job.wanted[gpu.uuid][setting], said.get((setting, gpu.uuid)))
        for gpu, setting in missed
    ]
    return Applied(after, now_locked, _came_true(todo, missed), problems)


def _about(gpu: Gpu, lines: Sequence[str]) -> str:
    """What nvidia-smi said of one GPU, or of no GPU in particular."""
    return "; ".join(line for line in lines if gpu.pci in line or " for GPU" not in line)


def _locked(step: Step, lines: Sequence[str], output: str, said: dict[tuple[str, str], str]) -> Step:
    """The part of a lock that the driver confirmed in so many words."""
    if step.value == UNLOCKED:
        return replace(step, gpus=() if lines else step.gpus)
    ranges = confirmed(output)
    for gpu in step.gpus:
        low, high = ranges.get(gpu.pci.lower(), step.value)
        if (low, high) != step.value:
            said[step.setting, gpu.uuid] = f"the driver locked {low} to {high} MHz instead"
    return replace(step, gpus=tuple(gpu for gpu in step.gpus if ranges.get(gpu.pci.lower()) == step.value))


def _without(locked: Locked, todo: Sequence[Step]) -> Locked:
    """The record without the locks that are to be set now: only a confirmation brings them back."""
    asked = {(gpu.uuid, step.setting) for step in todo for gpu in step.gpus}
    return {
        uuid: {setting: value for setting, value in settings.items() if (uuid, setting) not in asked}
        for uuid, settings in locked.items()
    }


def _problem(gpu: Gpu, setting: str, value: Any, said: str | None) -> str:  # noqa: ANN401
    why = said or "nvidia-smi reported no error, but it did not take effect"
    return f"{gpu.title}: {NAMES[setting]} could not be set to {value_words(setting, value)}: {why}"


def _came_true(todo: Sequence[Step], missed: Sequence[tuple[Gpu, str]]) -> list[Step]:
    failed = {(gpu.uuid, setting) for gpu, setting in missed}
    kept = []
    for step in todo:
        gpus = tuple(gpu for gpu in step.gpus if (gpu.uuid, step.setting) not in failed)
        kept.append(replace(step, gpus=gpus))
    return [step for step in kept if step.gpus]
