"""I12: an interrupt is no latch, `halt` is; pause, halt and limit 0 are separate, and each holds what it must hold."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest

from subagents import AgentHandle, Pool, PoolHalted, Status
from subagents.embedded import server
from support.history import assert_first_admissions_in_order, history
from support.probe import ProbeLog
from support.scenes import STOP_AGENTS, round_trips, statuses, until_begun, until_status
from support.waiting import eventually
from support.workers import Workers


async def raw(pool: Pool, *fields: str) -> list[str | None]:
    return await cast("Awaitable[list[str | None]]", pool.gateway.redis.hmget(f"{pool.prefix}config", list(fields)))


async def until_admitted(handle: AgentHandle) -> None:
    """Wait until it holds a permit, and make sure that no worker has a slot for it."""

    async def admitted() -> bool:
        record = await handle.get()
        assert record.status is Status.QUEUED
        return record.waiting_reason == "worker"

    await eventually(admitted, f"{handle.id} is admitted")


@pytest.mark.usefixtures("quiet")
async def test_I12_an_interrupt_is_no_latch(pool: Pool, workers: Workers) -> None:
    await workers.start()
    [before] = [await pool.spawn("nap", {"seconds": 60}, scopes=["s"])]
    await pool.interrupt("s")
    await pool.interrupt()
    assert (await pool.run("echo", {"value": 1}, scopes=["s"])).status is Status.COMPLETED
    assert await statuses([before]) == [Status.STOPPED]


@pytest.mark.usefixtures("quiet")
async def test_I12_halt_stops_everything_and_refuses_spawns_until_unhalt(pool: Pool, workers: Workers, probe: ProbeLog) -> None:
    await pool.set_max_concurrent(2)
    await workers.start()
    handles = [await pool.spawn("nap", {"seconds": 60}) for _ in range(3)]
    await until_begun(probe, handles[:2])
    report = await pool.halt(reason="runaway")
    assert (report.scope, report.complete, report.queued_stopped, len(report.agents)) == ("*", True, 1, 2)
    assert set(await statuses(handles)) == {Status.STOPPED}
    for bypass in (False, True):
        with pytest.raises(PoolHalted, match="unhalt"):
            await pool.spawn("echo", bypass_queue=bypass)
    assert (await pool.stats()).halted
    await pool.unhalt(reason="mended")
    assert not (await pool.stats()).halted
    assert (await pool.run("echo")).status is Status.COMPLETED
    [halted], [unhalted] = await history(pool, "halted"), await history(pool, "unhalted")
    assert (halted.facts["reason"], halted.facts["by"]) == ("runaway", "test")
    assert (unhalted.facts["reason"], unhalted.facts["by"]) == ("mended", "test")


async def test_I12_halt_is_kept_with_who_and_why(pool: Pool) -> None:
    await pool.halt(reason="runaway")
    assert await raw(pool, "halted", "halt_reason", "halted_by", "changed_by") == ["1", "runaway", "test", "test"]
    await pool.unhalt()
    assert await raw(pool, "halted", "halt_reason", "halted_by") == ["0", None, None]


async def test_I12_halt_survives_the_restart_of_everything(tmp_path: Path, probe: ProbeLog) -> None:
    with server(appendfsync="always") as own:
        async with Pool(own.url, name="halted", lease=3) as pool:
            workers = Workers(pool, own.url, tmp_path, probe.path)
            try:
                first = await workers.start()
                hit = await pool.spawn("nap", {"seconds": 60})
                await until_begun(probe, [hit])
                await pool.pause()
                assert (await pool.halt(reason="runaway")).complete
                first.kill_everything()
                await first.gone()
                await asyncio.to_thread(own.kill)
                await asyncio.to_thread(own.restart)
                await workers.start(wait=False)  # the dead one still counts as a worker for a while
                async with Pool(own.url, name="halted") as fresh:
                    with pytest.raises(PoolHalted):
                        await fresh.spawn("echo")
                    stats = await fresh.stats()
                    assert (stats.halted, stats.paused) == (True, True)
                    assert await statuses([fresh.handle(hit.id)]) == [Status.STOPPED]
                    await fresh.unhalt()
                    await fresh.unpause()
                    assert (await fresh.run("echo")).status is Status.COMPLETED
                assert probe.starts_of(hit.id) == 1
            finally:
                await workers.stop()


@pytest.mark.usefixtures("quiet")
async def test_I12_paused_and_halted_are_separate_flags(pool: Pool, workers: Workers) -> None:
    await workers.start()

    async def flags() -> tuple[bool, bool]:
        stats = await pool.stats()
        return stats.paused, stats.halted

    await pool.pause(reason="a moment")
    await pool.halt(reason="runaway")
    assert await flags() == (True, True)
    await pool.unhalt()
    assert await flags() == (True, False)
    handle = await pool.spawn("echo")
    record = await handle.wait(timeout=0.3)
    assert (record.status, record.admitted_at, record.waiting_reason) == (Status.QUEUED, None, "paused")
    await pool.halt()
    await pool.unpause()
    assert await flags() == (False, True)
    assert await statuses([handle]) == [Status.STOPPED]
    await pool.unhalt()
    assert await flags() == (False, False)
    assert (await pool.run("echo")).status is Status.COMPLETED
    assert [event.kind for event in await history(pool, "paused", "unpaused", "halted", "unhalted")] == [
        *("paused", "halted", "unhalted", "halted", "unpaused", "unhalted")
    ]


@pytest.mark.usefixtures("quiet")
async def test_I12_admission_needs_a_limit_beside_both_flags(pool: Pool, workers: Workers) -> None:
    await workers.start()
    await pool.set_max_concurrent(0)
    await pool.pause()
    handle = await pool.spawn("echo")
    await pool.set_max_concurrent(1)
    await round_trips(pool)
    assert (await handle.get()).admitted_at is None
    await pool.set_max_concurrent(0)
    await pool.unpause()
    await round_trips(pool)
    assert (await handle.get()).admitted_at is None
    await pool.set_max_concurrent(1)
    assert (await handle.wait(10)).status is Status.COMPLETED


Hold = Callable[[Pool], Awaitable[object]]


async def _pause(pool: Pool) -> None:
    await pool.pause()


async def _limit_0(pool: Pool) -> None:
    await pool.set_max_concurrent(0)


async def _halt(pool: Pool) -> None:
    await pool.halt()


async def _let_go(pool: Pool) -> None:
    await pool.unhalt()
    await pool.unpause()
    await pool.set_max_concurrent(4)


HOLDS = [pytest.param(_pause, id="pause"), pytest.param(_limit_0, id="limit 0"), pytest.param(_halt, id="halt")]


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("hold", [*HOLDS[:2]])
async def test_I12_the_admitted_may_still_start_after_pause_or_limit_0(pool: Pool, workers: Workers, probe: ProbeLog, hold: Hold) -> None:
    await pool.set_max_concurrent(2)
    await workers.start(slots=1)
    blocker, admitted, queued = [await pool.spawn("nap", {"seconds": 60}) for _ in range(3)]
    await until_begun(probe, [blocker])
    await until_admitted(admitted)
    await hold(pool)
    await blocker.abort()
    await until_begun(probe, [admitted])
    await round_trips(pool)
    record = await queued.get()
    assert (record.status, record.admitted_at) == (Status.QUEUED, None)
    await pool.interrupt()


@pytest.mark.usefixtures("quiet")
async def test_I12_a_survivor_that_has_not_started_goes_back_to_its_place_under_halt(pool: Pool, workers: Workers, probe: ProbeLog) -> None:
    await pool.set_max_concurrent(2)
    await workers.start(slots=1)
    blocker = await pool.spawn("nap", {"seconds": 60})
    survivors = [await pool.spawn("nap", {"seconds": 0.01}, on_interrupt="survive") for _ in range(4)]
    await until_begun(probe, [blocker])
    await until_admitted(survivors[0])
    report = await pool.halt(reason="runaway")
    assert [agent.id for agent in report.agents] == [blocker.id]

    async def back() -> bool:
        record = await survivors[0].get()
        return record.admitted_at is None and (record.waiting_reason, record.queue_position) == ("halted", 1)

    await eventually(back, "the survivor is back in front")
    stats = await pool.stats()
    assert (stats.active, stats.queued) == (0, 4)
    assert probe.started() == [blocker.id]
    await pool.unhalt()
    for survivor in survivors:
        assert (await survivor.wait(10)).status is Status.COMPLETED
    assert probe.started() == [blocker.id, *(survivor.id for survivor in survivors)]
    assert_first_admissions_in_order(await history(pool))


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("hold", HOLDS)
async def test_I12_a_returning_parent_is_held(pool: Pool, workers: Workers, probe: ProbeLog, hold: Hold) -> None:
    await workers.start(agents=STOP_AGENTS)
    parent = await pool.spawn("parent", {"seconds": 0.5}, on_interrupt="survive")
    await until_status(parent, Status.WAITING)
    await hold(pool)
    child = (await pool.list(tree=parent.id, type="nap")).records[0]
    assert (await pool.handle(child.id).wait(10)).status is Status.COMPLETED
    assert (await parent.wait(timeout=0.5)).status is Status.WAITING
    stretches = len([mark for mark in probe.marks("begin") if mark.agent_id == parent.id])
    await _let_go(pool)
    assert await parent.result(timeout=10) == {"child": child.id, "status": "completed"}
    assert len([mark for mark in probe.marks("begin") if mark.agent_id == parent.id]) == stretches + 1
    assert [event.kind for event in await history(pool) if event.agent_id == parent.id][-3:] == ["waiting", "resumed", "completed"]


@pytest.fixture
async def bypass_pool(redis_url: str, pool_name: str) -> AsyncIterator[Pool]:
    async with Pool(redis_url, name=pool_name, max_concurrent=4, lease=3, max_bypass=2, by="test") as opened:
        yield opened


@pytest.mark.usefixtures("bypass_pool", "quiet")
@pytest.mark.parametrize("hold", HOLDS[:2])
async def test_I12_bypass_runs_are_held(pool: Pool, workers: Workers, hold: Hold) -> None:
    await workers.start()
    await hold(pool)
    handle = await pool.spawn("echo", bypass_queue=True)
    record = await handle.wait(timeout=0.3)
    assert (record.status, record.admitted_at, record.waiting_reason) == (Status.QUEUED, None, "held")
    await _let_go(pool)
    assert (await handle.wait(10)).status is Status.COMPLETED


@pytest.mark.usefixtures("bypass_pool", "quiet")
async def test_I12_a_bypass_survivor_that_has_not_started_is_held_under_halt(pool: Pool, workers: Workers, probe: ProbeLog) -> None:
    await workers.start(slots=1)
    blocker = await pool.spawn("nap", {"seconds": 60})
    await until_begun(probe, [blocker])
    survivor = await pool.spawn("echo", bypass_queue=True, on_interrupt="survive")
    await until_admitted(survivor)
    await pool.halt()

    async def held() -> bool:
        record = await survivor.get()
        return (record.status, record.admitted_at, record.waiting_reason) == (Status.QUEUED, None, "held")

    await eventually(held, "the bypass survivor is held")
    assert probe.started() == [blocker.id]
    await pool.unhalt()
    assert (await survivor.wait(10)).status is Status.COMPLETED
