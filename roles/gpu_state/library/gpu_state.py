#!/usr/bin/python
"""Compare the GPUs' settings with what is declared, and restore what differs."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_state
short_description: Persistence, power limit, clocks, ECC, MIG and compute mode of a host's GPUs
description:
  - Reads all GPUs with one call of nvidia-smi, sets only what differs from what is declared, reads again,
    and fails when something did not come true. Nothing declared means nothing touched, only recorded.
  - ECC and MIG act after a reset of the GPU or a reboot of the host. C(notes) says so; it is never called
    done.
  - Which clocks are locked can't be read from the driver. What was locked in this boot is kept in O(locks),
    and a declared lock is set again at every run; it counts as a change only when the record lacks it.
options:
  declared:
    description:
      - Settings of all GPUs, and under C(gpus) those of single ones by UUID or index.
      - Known are persistence, ecc, mig (booleans), compute_mode (default, exclusive_process, prohibited),
        power_limit_w (watts or default), graphics_clocks_mhz and memory_clocks_mhz (MHz, a pair, or
        unlocked).
    type: dict
    default: {}
  nvidia_smi:
    description: The command, with arguments if it needs any.
    type: str
    default: nvidia-smi
  locks:
    description: Where the locked clocks of this boot are remembered.
    type: path
    default: /run/recover-and-bench/gpu-clocks.json
attributes:
  check_mode:
    support: full
    description: A MIG mode that the card would switch at once is predicted as one that waits for a reset.
  diff_mode:
    support: full
author: recover-and-bench
"""
EXAMPLES = r"""
- name: Restore the power limit and the clocks
  gpu_state:
    declared:
      persistence: true
      power_limit_w: 450
      graphics_clocks_mhz: [300, 2400]
      gpus:
        GPU-7d5a3f4c-7b0d-5b7e-9a53-3a1f54f2a7b1: {power_limit_w: 400}
"""
RETURN = r"""
gpus:
  description: UUID to index, pci, name, driver_version and the settings, as they are after the call.
  returned: always
  type: dict
changes:
  description: What was set, a sentence each.
  returned: always
  type: list
notes:
  description: What waits for a reset, and what else an operator should know.
  returned: always
  type: list
"""

import shlex
import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpu_state import locks, plan, words
from ansible.module_utils.gpu_state.apply import Applied, apply_steps
from ansible.module_utils.gpu_state.declared import DeclaredError, for_each, read_declared
from ansible.module_utils.gpu_state.readings import ReadingError
from ansible.module_utils.gpu_state.refuse import refusals
from ansible.module_utils.gpu_state.smi import Smi, SmiError


def unreadable(module: AnsibleModule, exc: SmiError | ReadingError, *, is_declared: bool) -> None:
    """End without a reading: a failure only where something was to be restored."""
    if is_declared:
        module.fail_json(
            msg=f"The GPUs' state can't be restored: {exc} (gpu_state_declared asks for settings.)", gpus={}
        )
    module.exit_json(
        changed=False,
        gpus={},
        changes=[],
        notes=[str(exc)],
        summary=f"GPU state not recorded: {exc}",
    )


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "declared": {"type": "dict", "default": {}},
            "nvidia_smi": {"type": "str", "default": "nvidia-smi"},
            "locks": {"type": "path", "default": "/run/recover-and-bench/gpu-clocks.json"},
        },
        supports_check_mode=True,
    )
    began_s = time.monotonic()
    record = Path(module.params["locks"])
    smi = Smi(shlex.split(module.params["nvidia_smi"]))
    try:
        declared = read_declared(module.params["declared"])
    except DeclaredError as exc:
        module.fail_json(msg=str(exc))
    try:
        before = smi.gpus()
        each = for_each(declared, before)
    except (SmiError, ReadingError) as exc:
        unreadable(module, exc, is_declared=any(declared.values()))
    except DeclaredError as exc:
        module.fail_json(msg=str(exc))
    wanted = {gpu.uuid: plan.resolved(gpu, each[gpu.uuid]) for gpu in before}
    problems = refusals(before, wanted)
    if problems:
        module.fail_json(msg="\n".join([*problems, "Nothing was changed."]))

    boot = locks.boot_id()
    job = plan.Job(before, wanted, locks.load(record, boot))
    try:
        result = (
            Applied.foreseen(job)
            if module.check_mode
            else apply_steps(smi, job, lambda locked: locks.save(record, boot, locked))
        )
    except (SmiError, ReadingError) as exc:
        module.fail_json(msg=f"The GPUs' state could not be proven after setting it: {exc}")
    except OSError as exc:
        module.fail_json(msg=f"{record} can't be written: {exc.strerror} (gpu_state_locks)")
    finish(module, job, result, seconds=time.monotonic() - began_s)


def finish(module: AnsibleModule, job: plan.Job, result: Applied, *, seconds: float) -> None:
    """Say what was done, also when a part of it failed."""
    changes = [words.change_words(step, job.locked) for step in result.done if not step.repeats]
    notes = words.notes(result.gpus, job.wanted)
    gpus = words.recorded(result.gpus, result.locked)
    outcome = {
        "changed": bool(changes),
        "gpus": gpus,
        "changes": changes,
        "notes": notes,
        "diff": {
            "before": words.state_text(job.gpus, job.locked),
            "after": words.state_text(result.gpus, result.locked),
        },
        "recovery": {
            "gpu_state": {"gpus": gpus, "notes": notes},
            "steps": [
                {
                    "step": "gpu_state",
                    "changed": bool(changes) and not module.check_mode,
                    "seconds": round(seconds, 3),
                    "outcome": "; ".join([*changes, *result.problems]) or "nothing to set",
                }
            ],
        },
    }
    if result.problems:
        done = f"\nSet before that: {'; '.join(changes)}." if changes else "\nNothing was changed."
        module.fail_json(msg="\n".join(result.problems) + done, **outcome)
    said = words.summary(result.gpus, job.wanted, changes)
    said = f"would {said}" if changes and module.check_mode else said
    module.exit_json(summary="; ".join([said, *notes]), **outcome)


if __name__ == "__main__":
    main()
