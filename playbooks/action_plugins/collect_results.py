"""Run the collector's steps on the controller, and show its lines while they come."""

from __future__ import annotations

DOCUMENTATION = """
    module: collect_results
    short_description: pulls the results and rebuilds tables and report
    description:
      - Runs C(python -m collector) step by step on the controller; its lines appear as they come. A node that
        can't be reached is reported by the collector and does not stop the rest.
    options:
      results_dir: {description: Where results are kept., type: path, required: true}
      project_dir: {description: The project's folder., type: path, required: true}
      inventories: {description: Inventory sources of this run., type: list, elements: str, required: true}
      limit: {description: The limit of this run., type: str, default: ""}
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

# A plugin is loaded by path, not as part of a package, so its own package has to be found first.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from recovery_report.words import from_here

# `collector` ends with this when some nodes could not be reached and the rest was done.
EXIT_PARTIAL = 3


class ActionModule(ActionBase):
    """See DOCUMENTATION."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        _, args = self.validate_argument_spec(
            argument_spec={
                "results_dir": {"type": "path", "required": True},
                "project_dir": {"type": "path", "required": True},
                "inventories": {"type": "list", "elements": "str", "required": True},
                "limit": {"type": "str", "default": ""},
            },
        )
        results = Path(args["results_dir"])
        pull = ["pull", *(word for source in args["inventories"] for word in ("--inventory", source))]
        if args["limit"]:
            pull += ["--limit", args["limit"]]
        steps = [pull, ["merge"], ["tables", "--quiet"], ["report"]]
        result["changed"] = False
        if self._task.check_mode:
            result["summary"] = (
                f"would pull the results, merge them and rebuild tables and report in {results}"
            )
            return result
        before = _digest(results)
        partial = False
        for step in steps:
            code, lines = self._collector(step, results, Path(args["project_dir"]), show=step != ["report"])
            partial = partial or code == EXIT_PARTIAL
            if code not in {0, EXIT_PARTIAL}:
                result.update(
                    failed=True, msg="\n".join(lines[-8:]) or f"collector {step[0]} ended with {code}"
                )
                return result
        result["changed"] = _digest(results) != before
        missing = "; some nodes are missing, see above" if partial else ""
        result["summary"] = f"report {results / 'report.html'}, tables in {results / 'tables'}{missing}"
        return result

    def _collector(
        self, step: list[str], results: Path, project: Path, *, show: bool
    ) -> tuple[int, list[str]]:
        """Run one step; its lines are shown while they come unless told otherwise, and returned."""
        command = [sys.executable, "-m", "collector", *step, "--results", str(results)]
        lines: list[str] = []
        with subprocess.Popen(
            command,
            cwd=project,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            for line in process.stdout or ():
                lines.append(line.rstrip())
                if show:
                    self._display.display(f"  here     {from_here(lines[-1])}")
        return process.returncode, lines


def _digest(results: Path) -> list[tuple[str, int, int]]:
    """Name, size and time of what is built, to say truthfully whether this run changed it."""
    return sorted(
        (str(path), path.stat().st_size, path.stat().st_mtime_ns)
        for path in (*results.glob("tables/*"), *results.glob("raw/**/*"))
        if path.is_file()
    )
