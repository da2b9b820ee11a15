"""Which server process it is: the numbers that change when systemd starts another one."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class Identity(Struct, frozen=True):
    invocation_id: str
    started_us: int
    restarts: int
    main_pid: int


class UnitState(Struct, frozen=True, kw_only=True):
    """What the control socket's `show` says."""

    active: str
    sub: str
    result: str
    exec_code: str
    exec_status: str
    processes: int
    identity: Identity
    raw: dict[str, Any]

    @property
    def is_up(self) -> bool:
        return self.active in {"active", "activating", "reloading"}

    @property
    def is_dead(self) -> bool:
        return self.active in {"failed", "inactive", "deactivating"}

    @property
    def sentence(self) -> str:
        return (
            f"unit {self.active}/{self.sub}, result {self.result}, exit {self.exec_code}/{self.exec_status}"
        )


def unit_state(reply: dict[str, Any]) -> UnitState:
    return UnitState(
        active=str(reply.get("ActiveState", "unknown")),
        sub=str(reply.get("SubState", "unknown")),
        result=str(reply.get("Result", "unknown")),
        exec_code=str(reply.get("ExecMainCode", "unknown")),
        exec_status=str(reply.get("ExecMainStatus", "unknown")),
        processes=_number(reply.get("processes")),
        identity=Identity(
            invocation_id=str(reply.get("InvocationID", "")),
            started_us=_number(reply.get("ExecMainStartTimestampMonotonic")),
            restarts=_number(reply.get("NRestarts")),
            main_pid=_number(reply.get("MainPID")),
        ),
        raw=reply,
    )


def _number(value: object) -> int:
    """Systemd prints numbers as text, and nothing where it has none."""
    return int(str(value)) if str(value).isdigit() else 0
