"""Nothing has no bound: every key of a pool has a TTL, or is on the short list of permanent or capped keys."""

from __future__ import annotations

from subagents import Pool

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
    async for key in pool.gateway.redis.scan_iter(match=f"{pool.prefix}*", count=1000):
        name = str(key).removeprefix(pool.prefix)
        if name in PERMANENT or name.startswith(PREFIXES):
            continue
        if await pool.gateway.redis.pttl(key) == -1:
            found.append(name)
    async for key in pool.gateway.redis.scan_iter(match=f"arq:*{{{pool.name}}}*", count=1000):
        found.append(str(key))
    return found


async def assert_quiet(pool: Pool) -> None:
    """After quiet no permit, lease or arq job is left, and no key is without bound (invariant 9)."""
    stats = await pool.stats()
    assert (stats.active, stats.queued, stats.waiting, stats.bypass, stats.stopping) == (0, 0, 0, 0, 0), stats
    assert await unbounded_keys(pool) == []
