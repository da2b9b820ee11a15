"""For each cell of the plan: keep it, run it, leave it, skip it, or let it wait; always with the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct, field

from bench_runner.cells import Cell, expand, quick_cells
from bench_runner.files import sha256_of
from bench_runner.fingerprint import Fingerprint, content_hash, fingerprints
from bench_runner.journal import Reason
from bench_runner.quirks.registry import Quirks, Ruling
from bench_runner.quirks.scope import place_of
from bench_runner.records import decode_cell
from bench_runner.refusals import Site, cell_refusal, configuration_refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench_runner.history import CellHistory, History
    from bench_runner.prepared import Prepared, Wishes
    from bench_runner.records import Folder

# A dead server is suspected before the cell: one more try, then only on demand (--retry).
CRASH_ATTEMPTS = 2
# Skips that only a running server can find: the reason stays as long as the identity does.
_FOUND_BY_SERVER = {"does_not_fit_served"}
NOT_QUICK = Reason("not_in_quick", "not one of the quick campaign's cells; a run without quick measures it")


class Decision(Struct, frozen=True, kw_only=True):
    """`run` measures it; `keep` (ok), `leave` (not ok, attempts used up), `wait` and `skip` don't."""

    action: str
    why: str
    reasons: list[Reason] = field(default_factory=list)
    recorded: bool = False  # the journal says so already: nothing to write
    probes: str | None = None  # the quirk that this cell tries again
    warning: str | None = None


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
    def __init__(self, prepared: Prepared, history: History, folder: Folder, wishes: Wishes) -> None:
        self.prepared = prepared
        self.plan = prepared.plan
        self.history = history
        self.folder = folder
        self.wishes = wishes
        self.quirks = Quirks(self.plan.quirks, folder.quirks, place_of(prepared.facts), retry=wishes.retry)
        # What takes turns is asked for before each start, so none is missed before.
        there = wishes.staged and not prepared.take_turns
        site = Site(staged=there, model_bytes=prepared.environment.model_bytes)
        self.refused = {
            name: configuration_refusal(prepared.deployments[name], prepared.facts, site)
            for name in self.plan.configurations
        }

    def tasks(self) -> list[Task]:
        """Every cell in order. Cells that wait for another one's crash are decided after that one."""
        known = self._known()
        decisions: dict[str, Decision] = {}
        rulings: dict[str, Ruling] = {}
        for one in known:
            decision = self._kept(one) or self._before_running(one, rulings) or self._by_history(one)
            if decision is not None:
                decisions[one.cell.name] = decision
        for one in known:
            if one.cell.name not in decisions:
                decisions[one.cell.name] = _by_blocker(one.past, decisions)
        self._choose_probes(known, decisions, rulings)
        self._choose_quick(decisions)
        return [
            Task(
                position=position,
                cell=one.cell,
                content_hash=one.content_hash,
                fingerprint=one.fingerprint,
                decision=_warned(decisions[one.cell.name], rulings.get(one.cell.name)),
                attempt=one.past.attempts + 1,
            )
            for position, one in enumerate(known, 1)
        ]

    def _known(self) -> list[Known]:
        prints = fingerprints(self.plan, self.prepared.deployments, self.prepared.facts)
        known = []
        turns = {name: each.models for name, each in self.prepared.deployments.items()}
        for cell in expand(self.plan, turns if self.prepared.take_turns else None):
            print_ = prints[cell.configuration, cell.workload]
            hash_ = content_hash(cell, print_.identity)
            past = self.history.cell(cell.name, hash_)
            known.append(Known(cell=cell, content_hash=hash_, fingerprint=print_, past=past))
        return known

    def _kept(self, one: Known) -> Decision | None:
        """A good result stays, whatever is known by now: it was measured."""
        if one.past.status != "ok" or one.past.is_open or why_not_trusted(self.folder, one):
            return None
        return Decision(action="keep", why="ok from before")

    def _before_running(self, one: Known, rulings: dict[str, Ruling]) -> Decision | None:
        """What forbids to run the cell at all, whatever its past."""
        deployment = self.prepared.deployments[one.cell.configuration]
        refusal = self.refused[one.cell.configuration] or cell_refusal(self.plan, one.cell, deployment)
        if refusal:
            return _skip(refusal, one.past)
        ruling = self.quirks.ruling(one.cell, deployment)
        if ruling is None:
            return None
        rulings[one.cell.name] = ruling
        if ruling.action == "probe":
            return _run(ruling.why)
        if ruling.action == "warn":
            return None
        if one.past.status == "crashed" and not one.past.is_open:
            # The crash itself says more than the quirk that it proved.
            return Decision(action="leave", why=f"crashed, and a quirk applies now: {ruling.why}")
        return _skip(Reason("quirk", ruling.why), one.past)

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
        return _run(f"journal and files disagree: {damage}") if damage else self._try_again(one)

    def _skipped_before(self, past: CellHistory) -> Decision | None:
        if past.blocked_by:
            return None
        if not self.wishes.retry and past.reasons and past.reasons[0].code in _FOUND_BY_SERVER:
            return Decision(action="skip", why=past.reasons[0].detail, reasons=past.reasons, recorded=True)
        return _run("the reason for skipping it is gone")

    def _try_again(self, one: Known) -> Decision:
        past = one.past
        allowed = self.plan.attempts
        if past.status == "crashed":
            allowed = min(allowed, CRASH_ATTEMPTS)
            if self.quirks.proven_fine(self.prepared.deployments[one.cell.configuration]):
                return _run("crashed before, and a probe of its quirk went well since")
        codes = ", ".join(reason.code for reason in past.reasons)
        if self.wishes.retry or past.attempts < allowed:
            return _run(f"{past.status} ({codes}), attempt {past.attempts + 1}")
        why = f"{past.status} ({codes}) in {past.attempts} attempts; --retry tries again"
        return Decision(action="leave", why=why)

    def _choose_probes(
        self, known: list[Known], decisions: dict[str, Decision], rulings: Mapping[str, Ruling]
    ) -> None:
        """One cell of a configuration tries a quirk again; the others wait for how it ends."""
        probed: dict[tuple[str, str], list[Cell]] = {}
        for one in known:
            ruling = rulings.get(one.cell.name)
            if ruling and ruling.action == "probe" and decisions[one.cell.name].action == "run":
                probed.setdefault((one.cell.configuration, ruling.name), []).append(one.cell)
        for (_, name), cells in probed.items():
            likeliest = self.quirks.likeliest(name)
            cell = next((each for each in cells if (each.workload, each.point) == likeliest), cells[0])
            decisions[cell.name] = msgspec.structs.replace(decisions[cell.name], probes=name)

    def _choose_quick(self, decisions: dict[str, Decision]) -> None:
        if not self.wishes.quick:
            return
        chosen = quick_cells(self.plan)
        for name, decision in decisions.items():
            if decision.action == "run" and name not in chosen:
                decisions[name] = Decision(action="wait", why=NOT_QUICK.detail, reasons=[NOT_QUICK])


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


def _warned(decision: Decision, ruling: Ruling | None) -> Decision:
    if ruling is None or ruling.action != "warn" or decision.action != "run":
        return decision
    return msgspec.structs.replace(decision, warning=ruling.why)


def _by_blocker(past: CellHistory, decisions: Mapping[str, Decision]) -> Decision:
    """A cell skipped because another one broke the server waits for that one."""
    blocker = decisions.get(past.blocked_by or "")
    if blocker is None or blocker.action != "leave":
        return _run(f"{past.blocked_by}, which it waited for, is tried again or done")
    why = past.reasons[0].detail if past.reasons else f"waits for {past.blocked_by}"
    return Decision(action="skip", why=why, reasons=past.reasons, recorded=True)
