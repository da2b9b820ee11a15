"""The operator's view of a run: a stage at a time, a line a node, live progress, and closing words."""

from __future__ import annotations

DOCUMENTATION = """
    name: recovery
    type: stdout
    short_description: shows a recovery run by stage and node, and writes recovery.json
    description:
      - A play named C(Stage | what) begins a stage. A task result may carry C(progress) (shown live, on
        retries too), C(summary) (a node's line for the stage), C(waited_s) (time that is not Ansible's own)
        and C(recovery) (what goes into recovery.json).
      - Tasks without news are silent. Failures show the whole message. C(-v) shows every task, C(-vv) its
        result.
    extends_documentation_fragment:
      - default_callback
      - result_format_callback
    requirements:
      - set as stdout in configuration
    options:
      report:
        description: >-
          Where the record of the run is written; relative to the configuration file. Empty writes none.
        default: results/recovery.json
        env: [{name: RECOVERY_REPORT}]
        ini: [{section: callback_recovery, key: report}]
        type: str
"""

import atexit
import json
import os
import shlex
import sys
import textwrap
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from ansible import constants as C  # noqa: N812 (Ansible's own name for it)
from ansible import context
from ansible.plugins.callback import CallbackBase

# A plugin is loaded by path, not as part of a package, so its own package has to be found first.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from recovery_report.closing import HERE, closing_lines
from recovery_report.record import Record, write_whole
from recovery_report.timeline import Timeline
from recovery_report.words import failure_message, from_here, shortened, wrapped

if TYPE_CHECKING:
    from ansible.executor.stats import AggregateStats
    from ansible.executor.task_result import CallbackTaskResult
    from ansible.playbook import Playbook
    from ansible.playbook.play import Play

# Without a terminal a progress line is repeated at most this often, so that a log stays readable.
QUIET_PROGRESS_S = 10.0
# Stages that only look: where a run ends in one of them, its failure message is the whole story.
REFUSALS = {
    "Validate": "Refused: no machine was touched.",
    "Check": "Refused: nothing was changed on any machine.",
}
# What Ansible itself says of Ctrl-C or of its own error is one line, without what an operator has to know.
CUT_SHORT = (
    "Cut short in {stage}. What was begun on a node (a copy, a campaign) goes on there; run the same command "
    "again to follow it."
)
COLORS = {"failed": C.COLOR_ERROR, "changed": C.COLOR_CHANGED}


def utc_now() -> str:
    return datetime.now(tz=timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


class CallbackModule(CallbackBase):
    """Prints what changed the operator's picture, and keeps the record of the run."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "recovery"

    def __init__(self) -> None:
        super().__init__()
        self._timeline = Timeline()
        self._record = Record(
            started_at=utc_now(), command=shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
        )
        self._stage = "Start"
        self._began_s = time.monotonic()
        self._progress: dict[str, tuple[str, float]] = {}
        self._on_progress_line = False
        self._terminal = sys.stdout.isatty()
        self._process = os.getpid()
        self._running = False
        # Ctrl-C ends a run without a word to its callbacks.
        atexit.register(self._cut_short)

    # -- the course of the run -------------------------------------------------------------------------

    def v2_playbook_on_start(self, playbook: Playbook) -> None:
        self._running = True
        mode = " (check mode: nothing is changed)" if self._checks() else ""
        self._say(f"{Path(playbook._file_name).name}{mode}", C.COLOR_HIGHLIGHT)  # noqa: SLF001 (no public name)

    def v2_playbook_on_play_start(self, play: Play) -> None:
        stage, _, what = play.get_name().partition(" | ")
        self._stage = stage
        if self._timeline.enter(stage, time.monotonic()):
            elapsed = time.monotonic() - self._began_s
            self._say(
                f"\n{stage} · {what}  [after {elapsed:.0f} s]" if what else f"\n{stage}", C.COLOR_HIGHLIGHT
            )
            self._write("in_progress")

    def v2_playbook_on_no_hosts_matched(self) -> None:
        self._say("  no host of the inventory belongs to this play", C.COLOR_SKIP)

    def v2_playbook_on_no_hosts_remaining(self) -> None:
        self._say("  no host is left to go on with", C.COLOR_ERROR)

    # -- results ---------------------------------------------------------------------------------------

    def v2_runner_on_ok(self, result: CallbackTaskResult) -> None:
        self._take(result)
        changed = result.result.get("changed", False)
        if changed:
            node = self._node(result)
            self._record.changed[node] = self._record.changed.get(node, 0) + 1
        if self._display.verbosity > 0 or (changed and "summary" not in result.result):
            word = "ok" if not changed else "would change" if self._checks() else "changed"
            self._task_line(result, word, C.COLOR_CHANGED if changed else C.COLOR_OK)
        self._verbose_result(result)

    def v2_runner_on_skipped(self, result: CallbackTaskResult) -> None:
        if self._display.verbosity > 0:
            self._task_line(result, "skipped", C.COLOR_SKIP)

    def v2_runner_on_failed(self, result: CallbackTaskResult, ignore_errors: bool = False) -> None:  # noqa: FBT001, FBT002 (Ansible's signature)
        self._take(result)
        message = failure_message(result.result)
        if ignore_errors:
            self._node_line(result, f"went on after: {message.splitlines()[0]}", C.COLOR_SKIP)
            return
        self._task_line(result, "FAILED", C.COLOR_ERROR)
        self._say(textwrap.indent(wrapped(message), " " * 11), C.COLOR_ERROR)
        self._record.problem(self._node(result), self._stage, result.task.get_name(), message)
        self._verbose_result(result)

    def v2_runner_on_unreachable(self, result: CallbackTaskResult) -> None:
        message = str(result.result.get("msg", "no answer")).strip()
        if result.task.ignore_unreachable:
            return
        self._task_line(result, "UNREACHABLE", C.COLOR_UNREACHABLE)
        self._say(textwrap.indent(wrapped(message), " " * 11), C.COLOR_UNREACHABLE)
        self._record.problem(self._node(result), self._stage, result.task.get_name(), message)

    def v2_runner_retry(self, result: CallbackTaskResult) -> None:
        self._show_progress(self._node(result), str(result.result.get("progress", "")))

    def v2_on_file_diff(self, result: CallbackTaskResult) -> None:
        results = result.result.get("results") if result.task.loop else [result.result]
        for item in results or []:
            diff = item.get("diff")
            if diff and item.get("changed"):
                text = self._get_diff(diff)
                if text:
                    self._say(f"  {self._node(result):<8} {result.task.get_name()}")
                    self._say(textwrap.indent(shortened(text), " " * 11))

    def v2_playbook_on_stats(self, stats: AggregateStats) -> None:
        self._running = False
        self._timeline.close(time.monotonic())
        bad = sorted({*stats.failures, *stats.dark})
        outcome = "failed" if bad else "checked" if self._checks() else "ok"
        rows = self._timeline.rows(time.monotonic())
        if bad and self._stage in REFUSALS:
            self._say(f"\n{REFUSALS[self._stage]}", C.COLOR_HIGHLIGHT)
            return
        lines = closing_lines(self._record, rows, check=outcome == "checked")
        self._say("\nSummary", C.COLOR_HIGHLIGHT)
        self._say("\n".join(f"  {line}" for line in lines))
        path = self._write(outcome)
        if path:
            self._say(f"  record of this run: {from_here(str(path))}", C.COLOR_VERBOSE)

    def _cut_short(self) -> None:
        # A worker of this run is a fork of it, and ends too.
        if not self._running or os.getpid() != self._process:
            return
        if self._stage in REFUSALS or self._checks():
            words = f"Cut short in {self._stage}. Nothing was changed on any machine."
        else:
            words = CUT_SHORT.format(stage=self._stage)
        self._say(f"\n{wrapped(words)}", C.COLOR_HIGHLIGHT)
        self._write("cut_short")

    # -- the parts -------------------------------------------------------------------------------------

    def _take(self, result: CallbackTaskResult) -> None:
        """Keep what a result says about the run: progress, time waited, the record, the node's line."""
        self._handle_warnings(result.result)
        if self._display.verbosity > 0:
            # The traceback says again, at length, what the message has said.
            self._handle_exception(result.result)
        node = self._node(result)
        for item in result.result.get("results", []) if result.task.loop else [result.result]:
            if not isinstance(item, dict):
                continue
            self._timeline.waited(f"{result.task._uuid}", item.get("waited_s") or {})  # noqa: SLF001 (no public id)
            if item.get("recovery"):
                self._record.add(node, item["recovery"])
            if item.get("summary"):
                self._record.line(self._stage, node, str(item["summary"]))
                color = next((color for key, color in COLORS.items() if item.get(key)), C.COLOR_OK)
                self._node_line(result, str(item["summary"]), color)
            elif item.get("progress"):
                self._show_progress(node, str(item["progress"]))

    @staticmethod
    def _checks() -> bool:
        return bool(context.CLIARGS.get("check"))

    def _node(self, result: CallbackTaskResult) -> str:
        """Whose line it is: a task that runs once is the controller's own."""
        return HERE if result.task.run_once else str(result.host.get_name())

    def _show_progress(self, node: str, text: str) -> None:
        said, said_at = self._progress.get(node, ("", 0.0))
        now_s = time.monotonic()
        if not text or text == said:
            return
        if self._terminal:
            columns = max(20, int(self._display.columns) - 2)
            line = f"  {node:<8} {from_here(text)}"[:columns]
            sys.stdout.write("\r\x1b[2K" + line)
            sys.stdout.flush()
            self._on_progress_line = True
        elif now_s - said_at < QUIET_PROGRESS_S:
            return
        else:
            self._line(node, text)
        self._progress[node] = (text, now_s)

    def _task_line(self, result: CallbackTaskResult, word: str, color: str) -> None:
        self._say(f"  {self._node(result):<8} {word}: {result.task.get_name()}", color)

    def _node_line(self, result: CallbackTaskResult, text: str, color: str) -> None:
        self._line(self._node(result), text, color)

    def _line(self, node: str, text: str, color: str | None = None) -> None:
        body = wrapped(text).replace("\n", "\n" + " " * 11)
        self._say(f"  {node:<8} {body}", color)

    def _verbose_result(self, result: CallbackTaskResult) -> None:
        if self._display.verbosity > 1:
            self._clean_results(result.result, result.task.action)
            self._say(textwrap.indent(self._dump_results(result.result, indent=2), " " * 11))

    def _say(self, text: str, color: str | None = None) -> None:
        if self._on_progress_line:
            sys.stdout.write("\r\x1b[2K")
            sys.stdout.flush()
            self._on_progress_line = False
        self._display.display(text, color=color)

    def _write(self, outcome: str) -> Path | None:
        """Write recovery.json once there is something in it; a check run leaves the last real one alone."""
        setting = self.get_option("report")
        if not setting or self._checks() or not self._record.nodes:
            return None
        base = Path(C.CONFIG_FILE).parent if C.CONFIG_FILE else Path.cwd()
        path = base / os.path.expandvars(setting)
        rows = self._timeline.rows(time.monotonic())
        document = self._record.document(outcome=outcome, ended_at=utc_now(), stages=rows)
        try:
            write_whole(path, json.dumps(document, indent=1, ensure_ascii=False) + "\n")
        except OSError as exc:
            self._display.warning(f"{path}: the record of this run can't be written: {exc}")
            return None
        return path
