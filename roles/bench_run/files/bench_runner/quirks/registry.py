"""Which known fault forbids a cell, which one is tried again, and what a crash or a good probe means for one.

A crash proposes a quirk. It applies after the second crash with the same signature, or when a person accepts
it. On another engine build or driver one cell tries it again, the probe: the same crash, and it applies there
as well; a good end, and it is retired there.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import Struct

from bench_runner.journal import utc_now
from bench_runner.quirks.scope import Place, covers, has_expired
from bench_runner.quirks.store import Entry, Sighting, Subject, changing, read_memory
from bench_runner.server.signatures import blames_configuration

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from bench_runner.cells import Cell
    from bench_runner.deployment import Deployment
    from bench_runner.plan import Quirk
    from bench_runner.quirks.store import State

CRASHES_THAT_PROVE = 2
KEPT_SIGHTINGS = 20


class Ruling(Struct, frozen=True, kw_only=True):
    """What a quirk means for a cell now. `why` is for people; that of a skip doesn't change by itself."""

    action: Literal["skip", "probe", "warn"]
    name: str
    why: str


class Quirks:
    """The plan's quirks and the node's memory, asked for one cell after the other."""

    def __init__(self, planned: Iterable[Quirk], path: Path, place: Place, *, retry: bool = False) -> None:
        self.planned = list(planned)
        self.path = path
        self.place = place
        self.retry = retry
        self.memory = read_memory(path)

    def ruling(self, cell: Cell, deployment: Deployment) -> Ruling | None:
        found = [*self._by_plan(cell, deployment), *self._by_memory(deployment)]
        for action in ("skip", "probe", "warn"):
            for ruling in found:
                if ruling.action == action:
                    return ruling
        return None

    def proven_fine(self, deployment: Deployment) -> bool:
        """Whether a fault of this configuration is gone here: then its crashes don't count any more."""
        build, driver = deployment.engine_build, self.place.driver_version
        return any(
            entry.fine_on(build, driver) > entry.seen_on(build, driver) for entry in self._about(deployment)
        )

    def likeliest(self, name: str) -> tuple[str, int] | None:
        """The workload and point that it was seen in last: the best to probe it with."""
        entry = self.memory.named(name)
        if entry is None or not entry.seen:
            return None
        _, workload, point, _ = max(entry.seen, key=lambda each: each.at).cell.rsplit(".", 3)
        return workload, int(point)

    def crashed(
        self, signature: str, cell: Cell, deployment: Deployment, *, campaign: str, run: str
    ) -> Entry | None:
        """Remember a crash. None where it tells nothing of the configuration."""
        if not blames_configuration(signature):
            return None
        seen = self._sighting(cell, deployment, campaign, run)
        subject = _subject(deployment, self.place)
        with changing(self.path) as change:
            same = (
                each
                for each in change.memory.quirks
                if (each.subject, each.signature) == (subject, signature)
            )
            old = next(same, None) or Entry(
                name=_free_name(signature, cell, change.memory.quirks),
                state="proposed",
                reason=f"{signature.replace('_', ' ')} in {cell.workload}/{cell.point}",
                signature=signature,
                subject=subject,
                changed_at=seen.at,
                changed_by="crash",
            )
            sightings = [*old.seen, seen]
            state: State = old.state
            if state == "retired" or (state == "proposed" and len(sightings) >= CRASHES_THAT_PROVE):
                state = "active"
            entry = msgspec.structs.replace(
                old,
                state=state,
                seen=sightings[-KEPT_SIGHTINGS:],
                changed_at=seen.at if state != old.state else old.changed_at,
                changed_by="crash" if state != old.state else old.changed_by,
            )
            change.memory = change.memory.put(entry)
        self.memory = change.memory
        return entry

    def went_well(
        self, name: str, cell: Cell, deployment: Deployment, *, campaign: str, run: str
    ) -> Entry | None:
        """A probe's cell was measured: the quirk is retired here, and stays where it was seen."""
        fine = self._sighting(cell, deployment, campaign, run)
        with changing(self.path) as change:
            old = change.memory.named(name)
            if old is None:
                return None
            entry = msgspec.structs.replace(
                old,
                state="retired",
                fine=[*old.fine, fine][-KEPT_SIGHTINGS:],
                changed_at=fine.at,
                changed_by="probe",
            )
            change.memory = change.memory.put(entry)
        self.memory = change.memory
        return entry

    def _by_plan(self, cell: Cell, deployment: Deployment) -> Iterable[Ruling]:
        for quirk in self.planned:
            word = self.memory.named(quirk.name)
            if (word and word.state == "rejected") or has_expired(quirk):
                continue
            if covers(quirk, cell, deployment, self.place):
                yield Ruling(action=quirk.verdict, name=quirk.name, why=f"{quirk.name}: {quirk.reason}")

    def _by_memory(self, deployment: Deployment) -> Iterable[Ruling]:
        build, driver = deployment.engine_build, self.place.driver_version
        for entry in self._about(deployment):
            seen, fine = entry.seen_on(build, driver), entry.fine_on(build, driver)
            why = f"{entry.name}: {entry.reason}"
            if entry.state == "proposed":
                yield Ruling(action="warn", name=entry.name, why=f"{why} (seen once: proposed)")
            elif seen > fine and not self.retry:
                yield Ruling(action="skip", name=entry.name, why=why)
            elif seen > fine:
                yield Ruling(
                    action="probe", name=entry.name, why=f"{entry.name} is tried again on demand (--retry)"
                )
            elif not fine:
                last = max(entry.seen, key=lambda each: each.at)
                what = "engine build" if last.engine_build != build else "driver"
                was, now = (
                    (last.engine_build, build)
                    if last.engine_build != build
                    else (last.driver_version, driver)
                )
                yield Ruling(
                    action="probe",
                    name=entry.name,
                    why=f"probe of {entry.name}: the {what} was {was}, is {now}",
                )

    def _about(self, deployment: Deployment) -> list[Entry]:
        subject = _subject(deployment, self.place)
        return [each for each in self.memory.quirks if each.subject == subject and each.state != "rejected"]

    def _sighting(self, cell: Cell, deployment: Deployment, campaign: str, run: str) -> Sighting:
        return Sighting(
            at=utc_now(),
            campaign=campaign,
            run=run,
            cell=cell.name,
            engine_build=deployment.engine_build,
            driver_version=self.place.driver_version,
        )


def settle(
    path: Path, name: str, state: Literal["active", "rejected"], planned: Iterable[Quirk]
) -> Entry | None:
    """A person's word on a quirk, of the node or of a plan; None where there is no such quirk."""
    with changing(path) as change:
        old = change.memory.named(name)
        if old is None:
            quirk = next((each for each in planned if each.name == name), None)
            if quirk is None:
                return None
            old = Entry(
                name=name, state="active", reason=quirk.reason, source="plan", changed_at="", changed_by=""
            )
        entry = msgspec.structs.replace(old, state=state, changed_at=utc_now(), changed_by="person")
        change.memory = change.memory.put(entry)
    return entry


def _subject(deployment: Deployment, place: Place) -> Subject:
    return Subject(
        engine=deployment.engine,
        model=deployment.model,
        tensor_parallelism=deployment.tensor_parallelism,
        gpu_model=place.gpu_model,
        flags=deployment.flags,
    )


def _free_name(signature: str, cell: Cell, entries: list[Entry]) -> str:
    name = re.sub(r"[^a-z0-9]+", "_", f"{signature}_{cell.configuration}".lower()).strip("_")[:56]
    taken = {entry.name for entry in entries}
    number = 2
    free = name
    while free in taken:
        free, number = f"{name}_{number}", number + 1
    return free
