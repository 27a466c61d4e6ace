"""I1 to I8: a latched signal interrupts its scope, exactly once."""

from __future__ import annotations

import asyncio

import pytest

from subagents import AbortAnswer, AgentHandle, InterruptOutcome, Pool, Status
from support.history import assert_settled_once, history
from support.probe import ProbeLog
from support.scenes import kinds_of, round_trips, statuses, until_begun
from support.workers import Workers

pytestmark = pytest.mark.usefixtures("quiet")


async def interrupts(pool: Pool) -> int:
    return len(await history(pool, "interrupt"))


async def naps(pool: Pool, count: int, *scopes: str) -> list[AgentHandle]:
    return [await pool.spawn("nap", {"seconds": 60}, scopes=scopes) for _ in range(count)]


async def test_I1_a_signal_that_fires_interrupts_its_scope_exactly_once(pool: Pool, workers: Workers, probe: ProbeLog) -> None:
    await pool.set_max_concurrent(3)
    await workers.start()
    outside = await naps(pool, 1)
    inside = await naps(pool, 5, "run")
    await until_begun(probe, [*outside, *inside[:2]])
    latch, signal = pool.latch("run"), asyncio.Event()
    latch.update(signal)
    signal.set()
    signal.set()
    report = await latch.fired()
    assert report is not None
    assert (report.scope, report.complete, report.queued_stopped) == ("run", True, 3)
    assert report.outcomes() == {InterruptOutcome.STOPPED: 2}
    assert set(await statuses(inside)) == {Status.STOPPED}
    for _ in range(3):
        latch.update(signal)
        signal.set()
        await round_trips(pool)
    assert await interrupts(pool) == 1
    assert await statuses(outside) == [Status.RUNNING]
    await pool.interrupt()


async def test_I1_a_signal_is_not_lost_when_it_is_replaced_as_it_fires(pool: Pool) -> None:
    latch, first, second = pool.latch(), asyncio.Event(), asyncio.Event()
    handle = await pool.spawn("nap")
    latch.update(first)
    await asyncio.sleep(0)
    first.set()
    latch.update(second)
    assert (await handle.wait(5)).status is Status.STOPPED
    assert await interrupts(pool) == 1
    latch.update(None)


async def test_I2_a_run_that_ends_normally_never_interrupts(pool: Pool, workers: Workers) -> None:
    await workers.start()
    latch, signal = pool.latch("run"), asyncio.Event()
    latch.update(signal)
    record = await pool.run("nap", {"seconds": 0.01}, scopes=["run"])
    assert record.status is Status.COMPLETED
    latch.update(None)
    signal.set()
    await round_trips(pool)
    assert await interrupts(pool) == 0


async def test_I2_a_pool_that_is_closed_takes_its_latches_along(pool: Pool, redis_url: str) -> None:
    handle = await pool.spawn("nap")
    async with Pool(redis_url, name=pool.name) as client:
        latch, signal = client.latch(), asyncio.Event()
        latch.update(signal)
        await asyncio.sleep(0)
    signal.set()
    await latch.fired()
    await round_trips(pool)
    assert await interrupts(pool) == 0
    assert await handle.abort() is AbortAnswer.STOPPED


async def test_I3_the_same_signal_again_installs_nothing(pool: Pool) -> None:
    latch, signal = pool.latch(), asyncio.Event()
    handle = await pool.spawn("nap")
    for _ in range(10):
        latch.update(signal)
        await asyncio.sleep(0)
    watching = [task for task in asyncio.all_tasks() if task.get_name() == "subagents-latch"]
    assert len(watching) == 1
    signal.set()
    assert (await handle.wait(5)).status is Status.STOPPED
    await latch.fired()
    await round_trips(pool)
    assert await interrupts(pool) == 1


async def test_I4_an_old_signal_does_nothing_once_it_is_replaced(pool: Pool) -> None:
    latch, old, new = pool.latch(), asyncio.Event(), asyncio.Event()
    handle = await pool.spawn("nap")
    latch.update(old)
    await asyncio.sleep(0)
    latch.update(new)
    old.set()
    await round_trips(pool)
    assert await interrupts(pool) == 0
    assert await statuses([handle]) == [Status.QUEUED]
    new.set()
    assert await latch.fired() is not None
    assert await interrupts(pool) == 1
    assert await statuses([handle]) == [Status.STOPPED]


class Hostile:
    """A signal of somebody's own making, broken everywhere."""

    def is_set(self) -> bool:
        raise RuntimeError("no answer")

    async def wait(self) -> None:
        raise RuntimeError("no signal")


async def test_I5_none_detaches_and_never_throws(pool: Pool, caplog: pytest.LogCaptureFixture) -> None:
    latch, signal = pool.latch(), asyncio.Event()
    for update in (None, None, signal, None, None):
        latch.update(update)
        await asyncio.sleep(0)
    assert await latch.fired() is None
    signal.set()
    latch.update(Hostile())
    latch.update(None)
    latch.update(Hostile())
    await latch.fired()
    latch.update(None)
    await round_trips(pool)
    assert await interrupts(pool) == 0
    assert "no signal" in caplog.text


async def test_I6_an_agent_that_outlives_its_run_is_covered_by_a_later_turn(pool: Pool, workers: Workers, probe: ProbeLog) -> None:
    await workers.start()
    latch = pool.latch("session")
    turns = [asyncio.Event() for _ in range(3)]
    latch.update(turns[0])
    [straggler] = await naps(pool, 1, "session")
    await until_begun(probe, [straggler])
    assert (await pool.run("echo", scopes=["session"])).status is Status.COMPLETED
    for turn in turns[1:]:
        latch.update(turn)
        assert (await pool.run("echo", scopes=["session"])).status is Status.COMPLETED
    turns[0].set()
    turns[1].set()
    await round_trips(pool)
    assert await statuses([straggler]) == [Status.RUNNING]
    turns[2].set()
    report = await latch.fired()
    assert report is not None
    assert [agent.id for agent in report.agents] == [straggler.id]
    assert await statuses([straggler]) == [Status.STOPPED]


async def test_I7_stopping_twice_is_harmless_and_counted_once(pool: Pool, workers: Workers, probe: ProbeLog) -> None:
    await pool.set_max_concurrent(1)
    await workers.start()
    stubborn = await pool.spawn("stubborn", {"seconds": 0.8})
    queued = await naps(pool, 5)
    await until_begun(probe, [stubborn])
    first = await pool.interrupt(reason="first", wait=0.1)
    second = await pool.interrupt(reason="second", wait=0.1)
    assert await stubborn.abort("third") is AbortAnswer.STOPPING
    assert await queued[0].abort("third") is AbortAnswer.ALREADY_TERMINAL
    assert (first.queued_stopped, second.queued_stopped) == (5, 0)
    assert [[agent.id for agent in report.agents] for report in (first, second)] == [[stubborn.id]] * 2
    assert (await pool.stats()).stopping == 1
    record = await stubborn.wait(10)
    assert (record.status, record.stop_reason) == (Status.STOPPED, "first")
    assert (await kinds_of(pool, stubborn))[-2:] == ["stopping", "stopped"]
    assert_settled_once(await history(pool))
    reports = [await pool.interrupt_report(report.interrupt_id) for report in (first, second)]
    assert [(report.complete, report.queued_stopped, len(report.agents)) for report in reports] == [(True, 5, 1), (True, 0, 1)]


async def test_I7_interrupts_at_the_same_time_settle_each_agent_once(pool: Pool, workers: Workers, probe: ProbeLog) -> None:
    await workers.start()
    handles = await naps(pool, 40, "run")
    await until_begun(probe, handles[:4])
    reports = await asyncio.gather(*(pool.interrupt(scope) for scope in ("*", "run", "*", "run")))
    assert all(report.complete for report in reports)
    assert sum(report.queued_stopped for report in reports) == 36
    assert {agent.outcome for report in reports for agent in report.agents} == {InterruptOutcome.STOPPED}
    assert {record.status for record in await asyncio.gather(*(handle.wait(5) for handle in handles))} == {Status.STOPPED}
    told = [event.agent_id for event in await history(pool, "stopping")]
    assert len(told) == len(set(told)) <= 4
    assert_settled_once(await history(pool))


async def test_I8_a_signal_that_has_fired_already_interrupts_now(pool: Pool, workers: Workers, probe: ProbeLog) -> None:
    await workers.start()
    handles = await naps(pool, 5)
    await until_begun(probe, handles[:4])
    signal = asyncio.Event()
    signal.set()
    latch = pool.latch()
    latch.update(signal)
    report = await latch.fired()
    assert report is not None
    assert (report.queued_stopped, report.outcomes()) == (1, {InterruptOutcome.STOPPED: 4})
    latch.update(signal)
    await round_trips(pool)
    assert await interrupts(pool) == 1
