"""What can end a run, each said in one sentence that an operator can act on."""

from __future__ import annotations


class BenchError(Exception):
    """The base of all: the runner can't go on."""


class PlanError(BenchError):
    """The plan, or what it refers to, isn't right. `problems` has one sentence each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class FolderError(BenchError):
    """The campaign's folder can't be used."""


class BusyError(BenchError):
    """Someone else is at work: another runner, or a server that isn't ours."""


class JournalError(BenchError):
    """The journal can't be read or written."""


class ControlError(BenchError):
    """The control socket didn't do what it was asked."""


class ServerError(BenchError):
    """The server of one configuration can't be measured; its cells say so and the next configuration goes on.

    `code` is the reason code. Whether it crashed is what the unit says, not what the sentence says.
    """

    def __init__(self, code: str, detail: str, *, crashed: bool = False) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.crashed = crashed
