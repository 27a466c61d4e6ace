"""Order and wake-up: nobody overtakes, and a free permit does not idle."""

from __future__ import annotations

import asyncio
import statistics

import pytest

from subagents import Pool, SpawnRequest
from support.history import assert_first_admissions_in_order, assert_hard_cap, history
from support.probe import ProbeLog
from support.workers import Workers


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("limit", [1, 3])
@pytest.mark.parametrize("clients", [1, 5])
async def test_case_B1_order(pool: Pool, redis_url: str, workers: Workers, probe: ProbeLog, limit: int, clients: int) -> None:
    await pool.set_max_concurrent(limit)
    await workers.start()
    await workers.start()

    async def spawn_some(count: int) -> None:
        async with Pool(redis_url, name=pool.name) as client:
            for _ in range(count):
                await client.spawn("nap", {"seconds": 0.001})

    await asyncio.gather(*(spawn_some(300 // clients) for _ in range(clients)))
    assert await pool.wait_idle(timeout=60)
    events = await history(pool)
    assert_hard_cap(events)
    assert_first_admissions_in_order(events)
    spawned = [event.agent_id for event in events if event.kind == "created"]
    assert [event.agent_id for event in events if event.kind == "admitted"] == spawned
    assert len(spawned) == 300
    if limit == 1:
        assert probe.started() == spawned
    assert probe.peak() <= limit


@pytest.mark.usefixtures("quiet")
async def test_case_B5_idle_permit(pool: Pool, workers: Workers, probe: ProbeLog) -> None:
    await pool.set_max_concurrent(1)
    await workers.start()
    await pool.spawn_many([SpawnRequest(type="nap", input={"seconds": 0.01}) for _ in range(200)])
    assert await pool.wait_idle(timeout=60)
    begins, ends = probe.marks("begin"), probe.marks("end")
    gaps = [begin.at - end.at for end, begin in zip(ends[:-1], begins[1:], strict=True)]
    assert len(gaps) == 199
    assert min(gaps) >= 0
    print(f"gap from release to next start: mean {statistics.mean(gaps) * 1000:.1f} ms, max {max(gaps) * 1000:.1f} ms")
