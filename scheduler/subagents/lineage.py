"""Who spawns: an agent's own code, or nobody in particular. `pool.spawn` inside an agent's code counts as that agent's child (N2)."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Running:
    """The agent whose code is running: the pool's prefix, its id, and the token of this start."""

    prefix: str
    agent_id: str
    token: str


running_agent: ContextVar[Running | None] = ContextVar("subagents_running_agent", default=None)


def parent_in(prefix: str) -> tuple[str, str]:
    """Id and token of the agent whose code runs here, if it belongs to the pool of that prefix; two empty texts otherwise."""
    running = running_agent.get()
    return (running.agent_id, running.token) if running is not None and running.prefix == prefix else ("", "")
