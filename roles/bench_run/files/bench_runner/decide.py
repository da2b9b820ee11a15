"""For each cell of the plan: keep it, run it, leave it as it is, or skip it; always with the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct, field

from bench_runner.cells import Cell, expand, why_not_fitting
from bench_runner.files import sha256_of
from bench_runner.fingerprint import Fingerprint, content_hash, fingerprint
from bench_runner.journal import Reason
from bench_runner.records import decode_cell

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench_runner.deployment import Deployment
    from bench_runner.history import CellHistory, History
    from bench_runner.plan import Plan, Quirk
    from bench_runner.prepared import Prepared
    from bench_runner.records import Folder

# A dead server is suspected before the cell: one more try, then only on demand (--retry).
CRASH_ATTEMPTS = 2
# Skips that only a running server can find: the reason stays as long as the identity does.
_FOUND_BY_SERVER = {"does_not_fit_served"}


class Decision(Struct, frozen=True, kw_only=True):
    """`run` measures it; `keep` (ok) and `leave` (not ok, attempts used up) don't; `skip` has `reasons`."""

    action: str
    why: str
    reasons: list[Reason] = field(default_factory=list)
    recorded: bool = False  # the journal says so already: nothing to write


class Known(Struct, frozen=True, kw_only=True):
    """A cell, what its result would depend on, and its past under that."""

    cell: Cell
    content_hash: str
    fingerprint: Fingerprint
    past: CellHistory


class Task(Struct, frozen=True, kw_only=True):
    """A cell of the plan with all that's known before a server runs."""

    position: int
    cell: Cell
    content_hash: str
    fingerprint: Fingerprint
    decision: Decision
    attempt: int


class Decider:
    def __init__(self, prepared: Prepared, history: History, folder: Folder, *, retry: bool = False) -> None:
        self.prepared = prepared
        self.plan = prepared.plan
        self.history = history
        self.folder = folder
        self.retry = retry

    def tasks(self) -> list[Task]:
        """Every cell in order. Cells that wait for another one's crash are decided after that one."""
        known = [self._known(cell) for cell in expand(self.plan)]
        decisions: dict[str, Decision] = {}
        for one in known:
            decision = self._before_running(one) or self._by_history(one)
            if decision is not None:
                decisions[one.cell.name] = decision
        for one in known:
            if one.cell.name not in decisions:
                decisions[one.cell.name] = _by_blocker(one.past, decisions)
        return [
            Task(
                position=position,
                cell=one.cell,
                content_hash=one.content_hash,
                fingerprint=one.fingerprint,
                decision=decisions[one.cell.name],
                attempt=one.past.attempts + 1,
            )
            for position, one in enumerate(known, 1)
        ]

    def _known(self, cell: Cell) -> Known:
        deployment = self.prepared.deployments[cell.configuration]
        print_ = fingerprint(self.plan, cell, deployment, self.prepared.facts)
        hash_ = content_hash(cell, print_.identity)
        past = self.history.cell(cell.name, hash_)
        return Known(cell=cell, content_hash=hash_, fingerprint=print_, past=past)

    def _before_running(self, one: Known) -> Decision | None:
        """What forbids to run the cell at all, whatever its past."""
        deployment = self.prepared.deployments[one.cell.configuration]
        quirk = matching_quirk(self.plan, one.cell, deployment, one.fingerprint.identity.get("gpu_model"))
        if quirk:
            return _skip(Reason("quirk", f"{quirk.name}: {quirk.reason}"), one.past)
        unfit = why_not_fitting(self.plan, one.cell, deployment.context_tokens)
        if unfit:
            return _skip(Reason("does_not_fit", unfit), one.past)
        return None

    def _by_history(self, one: Known) -> Decision | None:
        """None where another cell decides."""
        past = one.past
        if past.is_open:
            return _run("interrupted: it was started and never ended")
        if past.status is None:
            changed = self.history.knows(one.cell.name)
            return _run(
                "what it depends on has changed (another identity)" if changed else "not measured yet"
            )
        if past.status == "interrupted":
            return _run("interrupted")
        if past.status == "skipped":
            return self._skipped_before(past)
        damage = why_not_trusted(self.folder, one)
        if damage:
            return _run(f"journal and files disagree: {damage}")
        return Decision(action="keep", why="ok from before") if past.status == "ok" else self._try_again(past)

    def _skipped_before(self, past: CellHistory) -> Decision | None:
        if past.blocked_by:
            return None
        if not self.retry and past.reasons and past.reasons[0].code in _FOUND_BY_SERVER:
            return Decision(action="skip", why=past.reasons[0].detail, reasons=past.reasons, recorded=True)
        return _run("the reason for skipping it is gone")

    def _try_again(self, past: CellHistory) -> Decision:
        allowed = self.plan.attempts
        if past.status == "crashed":
            allowed = min(allowed, CRASH_ATTEMPTS)
        codes = ", ".join(reason.code for reason in past.reasons)
        if self.retry or past.attempts < allowed:
            return _run(f"{past.status} ({codes}), attempt {past.attempts + 1}")
        why = f"{past.status} ({codes}) in {past.attempts} attempts; --retry tries again"
        return Decision(action="leave", why=why)


def matching_quirk(plan: Plan, cell: Cell, deployment: Deployment, gpu_model: str | None) -> Quirk | None:
    """The first known fault whose every given scope covers this cell."""
    for quirk in plan.quirks:
        if (
            (not quirk.configurations or cell.configuration in quirk.configurations)
            and all(_is_or_in(deployment.flags.get(name), wanted) for name, wanted in quirk.flags.items())
            and (not quirk.engine_builds or deployment.engine_build in quirk.engine_builds)
            and (not quirk.gpu_models or gpu_model in quirk.gpu_models)
        ):
            return quirk
    return None


def why_not_trusted(folder: Folder, one: Known) -> str | None:
    """Compare a cell's files with what the journal says of them; None where they agree."""
    path = folder.cell(one.cell.name)
    wanted = {path.name: one.past.sha256}
    try:
        data = path.read_bytes()
        cell = decode_cell(data)
        wanted.update({ref.name: ref.sha256 for ref in cell.files.values()})
        for name, sha256 in wanted.items():
            found = data if name == path.name else path.with_name(name).read_bytes()
            if sha256_of(found) != sha256:
                return f"{name} is not the file that was written"
    except OSError as exc:
        return f"{exc.filename}: {exc.strerror}"
    except msgspec.DecodeError as exc:
        return f"{path.name}: {exc}"
    if cell.content_hash != one.content_hash or cell.status != one.past.status:
        return f"{path.name} is of another measurement"
    return None


def _run(why: str) -> Decision:
    return Decision(action="run", why=why)


def _skip(reason: Reason, past: CellHistory) -> Decision:
    recorded = past.status == "skipped" and not past.is_open and past.reasons == [reason]
    return Decision(action="skip", why=f"{reason.code}: {reason.detail}", reasons=[reason], recorded=recorded)


def _by_blocker(past: CellHistory, decisions: Mapping[str, Decision]) -> Decision:
    """A cell skipped because another one broke the server waits for that one."""
    blocker = decisions.get(past.blocked_by or "")
    if blocker is None or blocker.action != "leave":
        return _run(f"{past.blocked_by}, which it waited for, is tried again or done")
    why = past.reasons[0].detail if past.reasons else f"waits for {past.blocked_by}"
    return Decision(action="skip", why=why, reasons=past.reasons, recorded=True)


def _is_or_in(value: object, wanted: object) -> bool:
    """Flags are compared as text: 8 and "8" are the same on a command line."""
    choices = wanted if isinstance(wanted, list) else [wanted]
    return str(value) in {str(choice) for choice in choices}
