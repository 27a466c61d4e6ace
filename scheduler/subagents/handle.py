"""A handle on one agent: an id and the pool it belongs to; any process can make it anew from the id."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from subagents.errors import AgentFailed, AgentStopped, WaitTimeout
from subagents.models import AgentEvent, AgentRecord
from subagents.statuses import Status

if TYPE_CHECKING:
    from subagents.pool import Pool


class AbortAnswer(StrEnum):
    """What an abort found (P6)."""

    STOPPED = "stopped"
    STOPPING = "stopping"
    ALREADY_TERMINAL = "already_terminal"
    UNKNOWN = "unknown"


class AgentHandle:
    """One agent, queued, running or settled; `await handle.wait()` from the moment it is spawned, from any process (P3)."""

    __slots__ = ("_pool", "id")

    def __init__(self, pool: Pool, agent_id: str) -> None:
        self._pool = pool
        self.id = agent_id

    def __repr__(self) -> str:
        return f"AgentHandle({self.id!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AgentHandle) and other.id == self.id and other._pool.name == self._pool.name

    def __hash__(self) -> int:
        return hash(self.id)

    def __await__(self) -> Generator[Any, None, AgentRecord]:
        return self.wait().__await__()

    async def wait(self, timeout: float | None = None) -> AgentRecord:
        """Wait until the agent has settled and return its record, whatever the outcome.

        After `timeout` seconds the live record is returned instead; cancelling or timing out never touches the agent (P8).

        Raises:
            UnknownAgent, AgentExpired: there is no such record (any more).
            PoolClosed: the pool was closed meanwhile.
        """
        return await self._pool.settled(self.id, timeout)

    async def result(self, timeout: float | None = None) -> Any:
        """The agent's value. Taking it starts the short retention (10 minutes) of the record (P10).

        Raises:
            AgentFailed: it ended in `error` or `aborted`.
            AgentStopped: it was stopped.
            WaitTimeout: it is still under way after `timeout` seconds.
        """
        record = await self.wait(timeout)
        if not record.settled:
            raise WaitTimeout(record, timeout or 0.0)
        await self._pool.consume(self.id)
        if record.status is Status.STOPPED:
            raise AgentStopped(record)
        if record.status in (Status.ERROR, Status.ABORTED):
            raise AgentFailed(record)
        return record.result

    async def get(self) -> AgentRecord:
        """The record as it stands now."""
        return await self._pool.get(self.id)

    async def abort(self, reason: str | None = None) -> AbortAnswer:
        """Stop this agent and its descendants. Queued: out at once; running: told to stop, its permit is held until it is out (P5, P6)."""
        return await self._pool.abort(self.id, reason)

    def events(self, after: str = "0") -> AsyncIterator[AgentEvent]:
        """What the agent says, from the beginning or after a cursor, until it has settled."""
        return self._pool.agent_events(self.id, after)
