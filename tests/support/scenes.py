"""Waiting until a scene is set, and letting real time pass without sleeping."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from subagents import AgentHandle, Pool, Status
from support.history import history
from support.probe import ProbeLog
from support.waiting import eventually

STOP_AGENTS = str(Path(__file__).parent.parent / "agents" / "stop_agents.py")


async def until_begun(probe: ProbeLog, handles: Iterable[AgentHandle]) -> None:
    """Wait until the code of all of them has begun."""
    ids = {handle.id for handle in handles}
    await eventually(lambda: ids <= set(probe.started()), f"{len(ids)} agents have begun", 30)


async def until_status(handle: AgentHandle, status: Status) -> None:
    """Wait until an agent stands there."""

    async def there() -> bool:
        return (await handle.get()).status is status

    await eventually(there, f"agent {handle.id} is {status}")


async def statuses(handles: Iterable[AgentHandle]) -> list[Status]:
    """Where each of them stands now."""
    return [(await handle.get()).status for handle in handles]


async def kinds_of(pool: Pool, handle: AgentHandle) -> list[str]:
    """What has happened to one agent, in order."""
    return [event.kind for event in await history(pool) if event.agent_id == handle.id]


async def round_trips(pool: Pool, count: int = 30) -> None:
    """Time enough for something that must not happen: it would take one round trip."""
    for _ in range(count):
        await pool.stats()
