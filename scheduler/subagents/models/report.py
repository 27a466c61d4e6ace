"""The account of an interrupt."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel, ConfigDict


class InterruptOutcome(StrEnum):
    """How far one running agent has got with stopping."""

    STOPPED = "stopped"
    STOPPING = "stopping"
    NOT_RESPONDING = "not_responding"
    UNREACHABLE = "unreachable"


class InterruptedAgent(BaseModel):
    """One agent that was running when the interrupt hit it.

    `elapsed_ms` is the time from the interrupt until it was out, or until now. An `unreachable` agent's worker has not been heard
    of; its lease is void in `lease_void_ms`, and by then the worker has ended itself.
    """

    model_config = ConfigDict(frozen=True)

    id: str
    worker: str | None
    outcome: InterruptOutcome
    elapsed_ms: int
    lease_void_ms: int | None = None


class InterruptReport(BaseModel):
    """Who stopped, in how many ms, and who has not. `complete` means that every agent hit is out.

    The report never says `stopped` of what still runs.
    """

    model_config = ConfigDict(frozen=True)

    interrupt_id: str
    scope: str
    cutoff: int
    queued_stopped: int
    complete: bool
    agents: tuple[InterruptedAgent, ...]
    reason: str | None = None
    by: str | None = None
    at: datetime
    elapsed_ms: int

    def outcomes(self) -> dict[InterruptOutcome, int]:
        """How many agents stand at each outcome; outcomes that nobody has are left out."""
        counts: dict[InterruptOutcome, int] = {}
        for agent in self.agents:
            counts[agent.outcome] = counts.get(agent.outcome, 0) + 1
        return counts
