"""Who spawns: an agent's own code, or nobody in particular. `pool.spawn` inside an agent's code counts as that agent's child (N2)."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from subagents.handle import AgentHandle
    from subagents.pool import Pool


@dataclass(frozen=True, slots=True)
class Running:
    """The agent whose code is running: the pool's prefix, its id, the token of this start, and the handles it gets on its children."""

    prefix: str
    agent_id: str
    token: str
    child: Callable[[Pool, str], AgentHandle]


running_agent: ContextVar[Running | None] = ContextVar("subagents_running_agent", default=None)


def parent_in(prefix: str) -> tuple[str, str]:
    """Id and token of the agent whose code runs here, if it belongs to the pool of that prefix; two empty texts otherwise."""
    running = _running_in(prefix)
    return (running.agent_id, running.token) if running is not None else ("", "")


def child_of_running_agent(pool: Pool, agent_id: str) -> AgentHandle | None:
    """The handle on an agent that code running here has spawned; None if that code is no agent's of this pool."""
    running = _running_in(pool.prefix)
    return running.child(pool, agent_id) if running is not None else None


def _running_in(prefix: str) -> Running | None:
    running = running_agent.get()
    return running if running is not None and running.prefix == prefix else None
