"""Every error of the product, by whose fault it is: the caller's, the agent's, or the infrastructure's.

Each message says what is wrong, what was expected and what to do; the facts are attributes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from subagents.models.record import AgentRecord


class SubagentsError(Exception):
    """The root of everything this package raises on purpose."""


# The caller's fault ------------------------------------------------------------------------------------------------


class CallerError(SubagentsError):
    """The call cannot be done as asked; nothing was changed."""


class InvalidArgument(CallerError, ValueError):
    """An argument is of the wrong kind or out of its bounds."""


class InvalidInput(CallerError, ValueError):
    """An agent's input cannot be sent: it is no JSON, or not what the agent type takes."""


class InputTooLarge(InvalidInput):
    """An agent's input is larger than the pool takes."""

    def __init__(self, size: int, bound: int) -> None:
        super().__init__(f"the input is {size:,} bytes of JSON, the bound is {bound:,}: pass a reference instead of the data")
        self.size, self.bound = size, bound


class UnknownType(CallerError):
    """No worker has ever offered this agent type."""

    def __init__(self, type: str, known: tuple[str, ...] = ()) -> None:
        offered = f"; known types: {', '.join(known)}" if known else ""
        super().__init__(f"unknown agent type {type!r}{offered}")
        self.type, self.known = type, known


class KeyConflict(CallerError):
    """The key belongs to an agent that was spawned with another type, input or options."""

    def __init__(self, key: str | None, agent_id: str) -> None:
        super().__init__(f"key {key!r} belongs to agent {agent_id}, which was spawned with another payload: use a new key")
        self.key, self.agent_id = key, agent_id


class BypassRefused(CallerError):
    """No place is free among the runs that may bypass the queue."""

    def __init__(self, max_bypass: int) -> None:
        super().__init__(f"bypass_queue=True is refused: max_bypass is {max_bypass} and all of it is in use")
        self.max_bypass = max_bypass


class TooDeep(CallerError):
    """A spawn would nest agents deeper than the pool allows."""

    def __init__(self, max_depth: int, path: tuple[str, ...]) -> None:
        super().__init__(f"nesting is limited to max_depth={max_depth}; the path so far is {' > '.join(path)}")
        self.max_depth, self.path = max_depth, path


class ParentStopped(CallerError):
    """The agent that spawns, or one of its ancestors, is being stopped or has settled."""

    def __init__(self, parent_id: str) -> None:
        super().__init__(f"agent {parent_id} is stopping or has settled: it cannot spawn any more")
        self.parent_id = parent_id


class PoolHalted(CallerError):
    """The latch is closed: spawns are refused until `unhalt`."""

    def __init__(self) -> None:
        super().__init__("the pool is halted and refuses spawns; `subagents unhalt` (pool.unhalt()) opens it again")


class QueueFull(CallerError):
    """The pool holds as many unsettled agents as it may."""

    def __init__(self, bound: int) -> None:
        super().__init__(f"the pool holds {bound:,} unsettled agents, its bound (max_queued); nothing was spawned")
        self.bound = bound


class UnknownAgent(CallerError, LookupError):
    """No agent with this id was ever spawned here."""

    def __init__(self, agent_id: str) -> None:
        super().__init__(f"no agent {agent_id!r} in this pool")
        self.agent_id = agent_id


class AgentExpired(CallerError, LookupError):
    """The agent settled long ago; its record has been dropped by retention."""

    def __init__(self, agent_id: str) -> None:
        super().__init__(f"agent {agent_id} has settled and its record has expired")
        self.agent_id = agent_id


class UnknownInterrupt(CallerError, LookupError):
    """No interrupt with this id, or its report has expired (a day)."""

    def __init__(self, interrupt_id: str) -> None:
        super().__init__(f"no interrupt {interrupt_id!r} in this pool")
        self.interrupt_id = interrupt_id


class PoolClosed(CallerError):
    """The `Pool` was closed while it waited; its agents go on."""

    def __init__(self) -> None:
        super().__init__("this Pool is closed; agents go on, open another Pool to follow them")


class PermitCleared(CallerError):
    """`clear()` turned away everyone who waited for a permit of this semaphore."""

    def __init__(self, name: str) -> None:
        super().__init__(f"semaphore {name!r} was cleared while this caller waited for a permit")
        self.name = name


class PermitLost(CallerError):
    """A held permit's lease ran out; somebody else may hold it now."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the permit of semaphore {name!r} was lost: its lease was not renewed in time")
        self.name = name


class SemaphoreClosed(CallerError):
    """The `Semaphore` is not open: it was closed, or is used before `start` or outside of its `async with`."""

    def __init__(self, name: str) -> None:
        super().__init__(f"semaphore {name!r} is not open here: use it inside `async with Semaphore(…)`")
        self.name = name


# The agent's fault, or its owner's wish ----------------------------------------------------------------------------


class AgentOutcome(SubagentsError):
    """A result was asked for, and the agent has none to give."""

    def __init__(self, message: str, record: AgentRecord) -> None:
        super().__init__(message)
        self.record = record


class AgentFailed(AgentOutcome):
    """The agent ended in `error`, or was cut off at a turn limit (`aborted`)."""

    def __init__(self, record: AgentRecord) -> None:
        kind = record.error_kind or record.status.value
        super().__init__(f"agent {record.id} ({record.type}) ended in {kind}: {record.error or 'no further text'}", record)


class AgentStopped(AgentOutcome):
    """The agent was stopped by an abort or an interrupt."""

    def __init__(self, record: AgentRecord) -> None:
        by = f" by {record.stopped_by}" if record.stopped_by else ""
        why = f": {record.stop_reason}" if record.stop_reason else ""
        super().__init__(f"agent {record.id} ({record.type}) was stopped{by}{why}", record)


class WaitTimeout(AgentOutcome, TimeoutError):
    """The wait timed out; the agent is untouched, and its live record is attached."""

    def __init__(self, record: AgentRecord, timeout: float) -> None:
        super().__init__(f"agent {record.id} ({record.type}) is still {record.status} after {timeout:g} s; it goes on", record)
        self.timeout = timeout


# The infrastructure's fault ----------------------------------------------------------------------------------------


class InfrastructureError(SubagentsError):
    """Redis, the network or the set-up: the call may be tried again once that is mended."""


class RedisUnreachable(InfrastructureError, ConnectionError):
    """The server does not answer."""


class ServerOutOfMemory(InfrastructureError):
    """The server's memory is full: nothing new is taken in; running agents go on and can be finished and stopped."""


class PermissionDenied(InfrastructureError):
    """The Redis user lacks a right that the pool needs."""


class PoolNotFound(InfrastructureError):
    """The pool does not exist on this server (or was flushed)."""

    def __init__(self, pool: str) -> None:
        what, maker = ("semaphore", "Semaphore(…)") if pool.startswith("semaphore:") else ("pool", "Pool(…) or `subagents scheduler`")
        super().__init__(f"{what} {pool.removeprefix('semaphore:')!r} does not exist on this server (any more): open it with {maker}")
        self.pool = pool


class ForeignSchema(InfrastructureError):
    """The keys of this pool were written by another version of the data model."""

    def __init__(self, pool: str, schema: str) -> None:
        super().__init__(
            f"pool {pool!r} has schema version {schema!r}, this release reads version '1': use a matching release or another pool name"
        )
        self.pool, self.schema = pool, schema


class UnexpectedReply(InfrastructureError):
    """The server answered something that no script of this release says."""
