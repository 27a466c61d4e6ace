"""Reading a pool's history in tests."""

from __future__ import annotations

from subagents import Pool, PoolEvent


async def history(pool: Pool, *kinds: str) -> list[PoolEvent]:
    """Every event kept, of these kinds (all, if none is named), oldest first."""
    return [event async for event in pool.events("0", follow=False) if not kinds or event.kind in kinds]


def assert_hard_cap(events: list[PoolEvent]) -> None:
    """No admission happened with more permits held than the limit of that instant (invariant 1)."""
    for event in events:
        if event.kind == "admitted" and event.facts.get("set") == "active":
            assert event.active is not None
            assert event.max_concurrent is not None
            assert event.active <= event.max_concurrent, event


def assert_first_admissions_in_order(events: list[PoolEvent]) -> None:
    """First admissions are in spawn order, exactly (invariant 3)."""
    seen: dict[str, int] = {}
    for event in events:
        if event.kind == "admitted" and event.agent_id is not None:
            seen.setdefault(event.agent_id, event.seq)
    order = list(seen.values())
    assert order == sorted(order)


def assert_settled_once(events: list[PoolEvent]) -> None:
    """Each agent has exactly one terminal event, and nothing of it follows (P2, invariant 4)."""
    terminal = {"completed", "steered", "aborted", "stopped", "error"}
    ended: set[str] = set()
    created: set[str] = set()
    for event in events:
        if event.agent_id is None or event.kind in ("interrupt", "limit"):
            continue
        if event.kind == "created":
            created.add(event.agent_id)
        assert event.agent_id not in ended, f"an event follows the end: {event}"
        if event.kind in terminal:
            ended.add(event.agent_id)
    assert ended == created, f"{len(created - ended)} agents have no terminal event"
