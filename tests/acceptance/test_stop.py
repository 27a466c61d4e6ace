"""A stop that stops: cut-off subscribers, nobody home, unknown ids, races with the start."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from typing import cast

import pytest
from redis.asyncio import Redis

from subagents import AbortAnswer, Pool, Status
from support.history import assert_settled_once, history
from support.probe import ProbeLog
from support.waiting import eventually
from support.workers import Workers


@pytest.mark.usefixtures("quiet")
async def test_case_C1_cut_off_subscriber(pool: Pool, workers: Workers, probe: ProbeLog) -> None:
    await workers.start()
    handle = await pool.spawn("nap", {"seconds": 60})
    await eventually(lambda: probe.started() == [handle.id], "the agent runs")
    await pool.gateway.redis.client_kill_filter(_type="pubsub")
    await asyncio.sleep(0.2)  # the delay is part of the case
    began = time.monotonic()
    reports = [await pool.interrupt(wait=0)]
    while not reports[-1].complete and time.monotonic() - began < 5:
        reports.append(await pool.interrupt_report(reports[0].interrupt_id))
        out = bool(probe.marks("end"))
        assert out or all(agent.outcome != "stopped" for agent in reports[-1].agents)
    assert (await handle.wait(5)).status is Status.STOPPED
    print(f"stopped {probe.marks('end')[0].at - began:.2f} s after the interrupt")
    assert probe.marks("end")[0].at - began < 2


@pytest.mark.usefixtures("quiet")
async def test_case_C2_nobody_home(pool: Pool, workers: Workers, probe: ProbeLog) -> None:
    first = await workers.start()
    first.kill_everything()
    await first.gone()
    hit = [await pool.spawn("echo") for _ in range(100)]
    report = await pool.interrupt(reason="nobody is home")
    assert report.complete
    assert report.queued_stopped == 100
    for _ in range(3):
        await workers.start(wait=False)
    fresh = await pool.spawn("echo", {"value": "after"})
    assert (await fresh.wait(20)).result == "after"
    assert probe.started() == [fresh.id]
    assert {(await handle.wait(5)).status for handle in hit} == {Status.STOPPED}


@pytest.mark.usefixtures("quiet")
async def test_case_C3_unknown_id(pool: Pool, redis_url: str, workers: Workers) -> None:
    async def dump() -> dict[str, object]:
        keys = cast("AsyncIterator[str]", redis.scan_iter(match=f"{pool.prefix}*"))
        return {key: await redis.dump(key) async for key in keys}

    redis = Redis.from_url(redis_url)  # pyright: ignore[reportUnknownMemberType] of its own: a DUMP is bytes, not text
    before = await dump()
    for never_issued in ("0123456789abcdef0123", "no such id", "*", "", "a:b{c}"):
        assert await pool.abort(never_issued) is AbortAnswer.UNKNOWN
    assert await dump() == before
    await redis.aclose()
    await workers.start()
    assert (await pool.run("echo", {"value": 1})).status is Status.COMPLETED


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("quiet")
async def test_case_C4_race_with_start(pool: Pool, workers: Workers, probe: ProbeLog) -> None:
    await pool.set_max_concurrent(50)
    await workers.start(processes=2, slots=50)
    acknowledged: dict[str, float] = {}
    gate = asyncio.Semaphore(100)

    async def one() -> None:
        async with gate:
            handle = await pool.spawn("nap", {"seconds": 0.01})
            await asyncio.sleep(random.uniform(0, 0.03))  # the race is the case
            answer = await handle.abort("race")
            if answer is AbortAnswer.STOPPED:
                acknowledged[handle.id] = time.monotonic()

    await asyncio.gather(*(one() for _ in range(5000)))
    assert await pool.wait_idle(timeout=60)
    started = set(probe.started())
    assert not started & acknowledged.keys(), "an agent ran although its abort had been acknowledged as stopped"
    print(f"{len(acknowledged)} stopped before their start, {len(started)} started")
    assert_settled_once(await history(pool))
    assert len(started) == len(probe.marks("begin"))
