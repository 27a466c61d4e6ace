"""Following what happens: the pool's history, and what one agent says. Both can be resumed after any event's cursor."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime

from pydantic_core import from_json

from subagents.models import AgentEvent, PoolEvent
from subagents.scripts import calls, streams
from subagents.scripts.gateway import Gateway
from subagents.statuses import SETTLED
from subagents.waits import record_of


async def pool_events(gateway: Gateway, prefix: str, after: str | None, follow: bool) -> AsyncIterator[PoolEvent]:
    """Events of the pool's history after the cursor (None: from now on; `"0"`: from the oldest kept)."""
    key = f"{prefix}events"
    cursor = await streams.newest(gateway, key) if after is None else after
    while True:
        entries = await streams.read(gateway, key, cursor, block_ms=streams.BLOCK_MS if follow else None)
        for cursor, fields in entries:
            yield _pool_event(cursor, fields)
        if not entries and not follow:
            return


async def agent_events(gateway: Gateway, prefix: str, agent_id: str, after: str) -> AsyncIterator[AgentEvent]:
    """What an agent says, after the cursor, until its terminal event."""
    key, cursor = f"{prefix}events:{agent_id}", after
    while True:
        entries = await streams.read(gateway, key, cursor)
        for cursor, fields in entries:
            event = AgentEvent(cursor=cursor, kind=fields["kind"], at=_at(cursor), data=from_json(fields["data"]))
            yield event
            if event.kind in SETTLED:
                return
        if not entries and record_of((await gateway(calls.get(prefix, [agent_id])))[0]).settled:
            last = await streams.read(gateway, key, cursor, block_ms=None)
            if not last:
                return


def _at(cursor: str) -> datetime:
    return datetime.fromtimestamp(int(cursor.partition("-")[0]) / 1000, UTC)


def _pool_event(cursor: str, fields: Mapping[str, str]) -> PoolEvent:
    known = {"kind", "agent_id", "seq", "active", "max_concurrent"}
    return PoolEvent(
        cursor=cursor,
        kind=fields["kind"],
        agent_id=fields["agent_id"] or None,
        seq=int(fields["seq"]),
        at=_at(cursor),
        active=int(fields["active"]) if "active" in fields else None,
        max_concurrent=int(fields["max_concurrent"]) if "max_concurrent" in fields else None,
        facts={name: value for name, value in fields.items() if name not in known},
    )
