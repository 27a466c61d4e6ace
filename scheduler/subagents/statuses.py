"""The statuses of an agent, and the table of legal moves between them: the one place, read by the code, the docs and the tests."""

from __future__ import annotations

from enum import StrEnum


class Status(StrEnum):
    """Where an agent stands."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    STOPPING = "stopping"
    COMPLETED = "completed"
    STEERED = "steered"
    ABORTED = "aborted"
    STOPPED = "stopped"
    ERROR = "error"

    @property
    def settled(self) -> bool:
        """True once the run has its one terminal status."""
        return self in SETTLED


SETTLED = frozenset({Status.COMPLETED, Status.STEERED, Status.ABORTED, Status.STOPPED, Status.ERROR})

MOVES: dict[Status | None, dict[Status, str]] = {
    None: {Status.QUEUED: "spawn"},
    Status.QUEUED: {
        Status.RUNNING: "start",
        Status.STOPPED: "abort or interrupt",
        Status.ERROR: "undeliverable",
    },
    Status.RUNNING: {
        Status.WAITING: "lends its permit while it awaits a child",
        Status.STOPPING: "abort or interrupt",
        Status.COMPLETED: "the agent's end",
        Status.STEERED: "the agent's end after a turn limit, in grace",
        Status.ABORTED: "cut off at a turn limit",
        Status.ERROR: "failure, time-out, budget, shutdown, or worker lost without an attempt left",
        Status.QUEUED: "worker lost or drained, with an attempt left",
    },
    Status.WAITING: {
        Status.RUNNING: "permit taken back, at its own place",
        Status.STOPPING: "abort or interrupt",
        Status.ERROR: "time-out, shutdown, or worker lost without an attempt left",
        Status.QUEUED: "worker lost or drained, with an attempt left",
    },
    Status.STOPPING: {Status.STOPPED: "out"},
}


class ErrorKind(StrEnum):
    """Why an agent ended in `error`."""

    AGENT_ERROR = "agent_error"
    TIMEOUT = "timeout"
    STALLED = "stalled"
    WORKER_LOST = "worker_lost"
    UNDELIVERABLE = "undeliverable"
    INVALID_INPUT = "invalid_input"
    RESULT_TOO_LARGE = "result_too_large"
    UNSERIALISABLE_RESULT = "unserialisable_result"
    SHUTDOWN = "shutdown"
    BUDGET = "budget"


class Outcome(StrEnum):
    """What a worker says of the end of a run; the script decides the status (a stop request beats every outcome)."""

    COMPLETED = "completed"
    STEERED = "steered"
    ABORTED = "aborted"
    ERROR = "error"
    STOPPED = "stopped"
    HANDED_BACK = "handed_back"
