"""Run the module bench_stop on a machine that may be out of reach: that is said, and stops nobody else."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """Options and results: see playbooks/library/bench_stop.py."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        try:
            answer = self._execute_module(module_args=dict(self._task.args), task_vars=task_vars)
        except AnsibleConnectionFailure as exc:
            why = str(exc).strip().splitlines()[-1]
            result.update(
                changed=False,
                running=[],
                finished=True,
                summary=f"out of reach, so a campaign that may run there was not asked to stop: {why}",
            )
            return result
        result.update(answer)
        return result
