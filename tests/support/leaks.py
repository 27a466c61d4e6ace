"""Nothing has no bound: every key of a pool has a TTL, or is on the short list of permanent or capped keys."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

from subagents import Pool
from subagents.scripts import calls

PERMANENT = {
    "config",
    "clock",
    "seq",
    "admissions",
    "lanes",
    "unserved",
    "active",
    "waiting",
    "bypass",
    "bypass:held",
    "stopping",
    "scope:*",
    "cutoff",
    "cutoff:forced",
    "cutoff:cause",
    "sweeping",
    "interrupts",
    "events",
    "settled",
    "index:all",
    "workers",
    "types",
}
PREFIXES = ("index:type:", "index:status:", "serving:", "wake:")


async def unbounded_keys(pool: Pool) -> list[str]:
    """Keys that would stay for ever, once nothing is unsettled."""
    found: list[str] = []
    for key in await _keys(pool, f"{pool.prefix}*"):
        name = key.removeprefix(pool.prefix)
        if name in PERMANENT or name.startswith(PREFIXES):
            continue
        if await pool.gateway.redis.pttl(key) == -1:
            found.append(name)
    return found + await _keys(pool, f"arq:*{{{pool.name}}}*")


async def _keys(pool: Pool, pattern: str) -> list[str]:
    found = cast("AsyncIterator[str]", pool.gateway.redis.scan_iter(match=pattern, count=1000))
    return [key async for key in found]


async def _clear_aside(pool: Pool) -> None:
    """Lanes that an interrupt of everyone set aside go in portions, with whoever sweeps next; here nobody may be left who does."""
    while await _keys(pool, f"{pool.prefix}aside*"):
        await pool.gateway(calls.sweep(pool.prefix, "", 1000))


async def assert_quiet(pool: Pool) -> None:
    """After quiet no permit, lease or arq job is left, and no key is without bound (invariant 9)."""
    stats = await pool.stats()
    assert (stats.active, stats.queued, stats.waiting, stats.bypass, stats.stopping) == (0, 0, 0, 0, 0), stats
    await _clear_aside(pool)
    unbounded = await unbounded_keys(pool)
    assert not unbounded, f"keys without bound: {unbounded}"
