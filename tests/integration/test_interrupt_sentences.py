"""I9 to I11, I13 and I14: one interrupt stops everything it hits, everywhere, and comes back with an account.

I1 to I8 are in `test_latch_sentences`, I12 in `test_halt_sentences`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import cast

import pytest

from subagents import (
    AgentHandle,
    InterruptOutcome,
    InterruptReport,
    InvalidArgument,
    Pool,
    SpawnRequest,
    Status,
    UnknownInterrupt,
)
from subagents.embedded import server
from subagents.interrupts import read_report
from subagents.keys import new_id
from subagents.scripts import calls, loader
from subagents.statuses import Outcome
from support.history import assert_settled_once, history
from support.manual_worker import ManualWorker
from support.probe import ProbeLog
from support.scenes import STOP_AGENTS, round_trips, statuses, until_begun, until_status
from support.waiting import eventually
from support.workers import Workers

LEASE = 3.0
HEARTBEAT = LEASE / 8


async def naps(pool: Pool, count: int, *scopes: str, seconds: float = 60) -> list[AgentHandle]:
    return await pool.spawn_many([SpawnRequest(type="nap", input={"seconds": seconds}, scopes=scopes)] * count)


async def until_complete(pool: Pool, report: InterruptReport) -> InterruptReport:
    async def complete() -> InterruptReport | None:
        now = await pool.interrupt_report(report.interrupt_id)
        return now if now.complete else None

    return cast("InterruptReport", await eventually(complete, "the account is complete"))


async def interrupt_unheard(pool: Pool, scope: str = "*") -> str:
    """An interrupt that is durable and nothing else: its message is lost, and nobody sweeps. Returns its id."""
    script, interrupt_id = loader.load("interrupt").source, new_id()
    lines = script.splitlines()
    lost = [line for line in lines if ("PUBLISH" in line and "'interrupt '" in line) or ("ZADD" in line and "P .. 'interrupts'" in line)]
    assert len(lost) == 2
    mute = "\n".join(line for line in lines if line not in lost)
    await cast("Awaitable[object]", pool.gateway.redis.eval(mute, 1, pool.prefix, interrupt_id, scope, "0", "0", "unheard", "test"))
    return interrupt_id


@pytest.mark.usefixtures("quiet")
async def test_I9_one_interrupt_stops_running_and_queued_of_its_scope_on_every_worker(
    pool: Pool, workers: Workers, probe: ProbeLog
) -> None:
    await pool.set_max_concurrent(8)
    for _ in range(2):
        await workers.start(processes=2, slots=2)
    ours: list[AgentHandle] = []
    theirs: list[AgentHandle] = []
    for _ in range(10):
        ours += await naps(pool, 1, "ours", "shared")
        theirs += await naps(pool, 1, "theirs", "shared")
    await until_begun(probe, [*ours[:4], *theirs[:4]])
    report = await pool.interrupt("ours", reason="enough")
    assert (report.complete, report.queued_stopped, report.outcomes()) == (True, 6, {InterruptOutcome.STOPPED: 4})
    assert set(await statuses(ours)) == {Status.STOPPED}
    assert {mark.agent_id for mark in probe.marks("end")} == {handle.id for handle in ours[:4]}
    await until_begun(probe, theirs[:8])
    assert set(await statuses(theirs)) == {Status.RUNNING, Status.QUEUED}
    everyone = await pool.interrupt(reason="all of it")
    assert (everyone.complete, everyone.queued_stopped, everyone.outcomes()) == (True, 2, {InterruptOutcome.STOPPED: 8})
    assert len({agent.worker for agent in everyone.agents}) == 4
    assert set(await statuses(theirs)) == {Status.STOPPED}
    assert not {handle.id for handle in ours[4:] + theirs[8:]} & set(probe.started())
    assert_settled_once(await history(pool))


@pytest.mark.usefixtures("quiet")
async def test_I9_a_scope_of_nobody_and_a_name_that_no_agent_can_carry(pool: Pool) -> None:
    [handle] = await naps(pool, 1, "a")
    report = await pool.interrupt("b")
    assert (report.complete, report.queued_stopped, report.agents) == (True, 0, ())
    for name in ("", "@ancestor", "a b", "a,b"):
        with pytest.raises(InvalidArgument):
            await pool.interrupt(name)
    assert await statuses([handle]) == [Status.QUEUED]
    await pool.interrupt("a")


@pytest.mark.usefixtures("quiet")
async def test_I10_survivors_and_their_children_outlive_all_but_force(pool: Pool, workers: Workers, probe: ProbeLog) -> None:
    await pool.set_max_concurrent(3)
    await workers.start(agents=STOP_AGENTS)
    parent = await pool.spawn("parent", {"seconds": 60}, scopes=["s"], on_interrupt="survive")
    await until_status(parent, Status.WAITING)
    child = pool.handle(await _child_of(pool, parent))
    ordinary = await naps(pool, 2, "s")
    await until_begun(probe, [child, *ordinary])
    queued_survivor = await pool.spawn("nap", {"seconds": 60}, scopes=["s"], on_interrupt="survive")
    queued_ordinary = await naps(pool, 1, "s")
    await pool.pause()
    for scope in ("s", "*"):
        report = await pool.interrupt(scope)
        assert report.complete
        assert set(await statuses([*ordinary, *queued_ordinary])) == {Status.STOPPED}
        assert await statuses([parent, child, queued_survivor]) == [Status.WAITING, Status.RUNNING, Status.QUEUED]
    await pool.unpause()
    await until_begun(probe, [queued_survivor])
    report = await pool.interrupt("s", force=True)
    assert report.complete
    assert {agent.id for agent in report.agents} == {parent.id, child.id, queued_survivor.id}
    assert set(await statuses([parent, child, queued_survivor])) == {Status.STOPPED}


async def _child_of(pool: Pool, parent: AgentHandle) -> str:
    async def child() -> str | None:
        return next((record.id for record in await pool.list(tree=parent.id) if record.id != parent.id), None)

    return cast("str", await eventually(child, "there is a child"))


@pytest.mark.usefixtures("quiet")
async def test_I11_an_interrupt_that_nobody_heard_stops_all_by_the_next_heartbeat(pool: Pool, workers: Workers, probe: ProbeLog) -> None:
    await workers.start(processes=2)
    handles = await naps(pool, 10)
    await until_begun(probe, handles[:4])
    began = time.monotonic()
    interrupt_id = await interrupt_unheard(pool)
    assert set(await statuses(handles[:4])) <= {Status.STOPPING, Status.STOPPED}
    assert set(await statuses(handles[4:])) == {Status.STOPPED}
    await eventually(lambda: len(probe.marks("end")) == 4, "all four are out")
    took = probe.marks("end")[-1].at - began
    print(f"out {took * 1000:.0f} ms after an interrupt that nobody heard; a heartbeat is {HEARTBEAT * 1000:.0f} ms")
    assert took < 4 * HEARTBEAT
    assert not await pool.gateway(calls.sweep(pool.prefix, interrupt_id, 100))
    assert {record.status for record in await asyncio.gather(*(handle.wait(10) for handle in handles))} == {Status.STOPPED}
    assert len(probe.started()) == 4


@pytest.mark.usefixtures("quiet")
async def test_I11_an_interrupt_while_all_workers_are_gone_holds_when_they_are_back(pool: Pool, workers: Workers, probe: ProbeLog) -> None:
    await pool.set_max_concurrent(2)
    first = await workers.start(slots=1)
    running = await pool.spawn("nap", {"seconds": 60}, retries=5)
    admitted = await pool.spawn("nap", {"seconds": 60}, retries=5)
    queued = await pool.spawn("nap", {"seconds": 60}, retries=5)
    await until_begun(probe, [running])
    first.kill_everything()
    await first.gone()
    report = await pool.interrupt(wait=0)
    assert not report.complete
    assert next(agent.outcome for agent in report.agents if agent.id == running.id) is not InterruptOutcome.STOPPED
    await workers.start(wait=False)  # the dead one still counts as a worker for a while
    fresh = await pool.spawn("echo", {"value": "after"})
    assert (await fresh.wait(30)).result == "after"
    complete = await until_complete(pool, report)
    assert (complete.queued_stopped, [agent.id for agent in complete.agents]) == (2, [running.id])
    assert set(await statuses([running, admitted, queued])) == {Status.STOPPED}
    assert probe.started() == [running.id, fresh.id]


@pytest.mark.usefixtures("quiet")
async def test_I13_the_report_says_who_stopped_and_when_and_can_be_fetched_again(
    pool: Pool, workers: Workers, probe: ProbeLog, redis_url: str
) -> None:
    await workers.start()
    handles = await naps(pool, 6, "s")
    await until_begun(probe, handles[:4])
    began = time.monotonic()
    report = await pool.interrupt("s", reason="user pressed Esc")
    took = (time.monotonic() - began) * 1000
    assert (report.scope, report.reason, report.by, report.complete) == ("s", "user pressed Esc", "test", True)
    assert report.cutoff == (await handles[-1].get()).seq
    assert report.queued_stopped == 2
    assert {agent.id for agent in report.agents} == {handle.id for handle in handles[:4]}
    for agent in report.agents:
        record = await pool.get(agent.id)
        assert (agent.outcome, agent.worker, agent.lease_void_ms) == (InterruptOutcome.STOPPED, record.worker, None)
        assert record.ended_at is not None
        assert agent.elapsed_ms == round((record.ended_at - report.at).total_seconds() * 1000)
        assert 0 <= agent.elapsed_ms <= report.elapsed_ms <= took + 1
    async with Pool(redis_url, name=pool.name) as other:
        assert await other.interrupt_report(report.interrupt_id) == report
        for unknown in (new_id(), handles[0].id, "", "*", "no such interrupt"):
            with pytest.raises(UnknownInterrupt):
                await other.interrupt_report(unknown)
    ttl = cast("int", await pool.gateway.redis.pttl(f"{pool.prefix}interrupt:{report.interrupt_id}"))
    assert 0 < ttl <= 86_400_000


@pytest.mark.usefixtures("quiet")
async def test_I13_an_agent_that_does_not_respond_is_never_called_stopped_before_it_is_out(
    pool: Pool, workers: Workers, probe: ProbeLog
) -> None:
    await workers.start(grace=30)
    stubborn = await pool.spawn("stubborn", {"seconds": 3})
    [polite] = await naps(pool, 1)
    await until_begun(probe, [stubborn, polite])
    reports = [await pool.interrupt(wait=0)]
    while not reports[-1].complete:
        reports.append(await pool.interrupt_report(reports[0].interrupt_id))
        said = {agent.id: agent.outcome for agent in reports[-1].agents}
        status = (await stubborn.get()).status
        out = {mark.agent_id for mark in probe.marks("end")}
        assert {agent for agent, outcome in said.items() if outcome is InterruptOutcome.STOPPED} <= out
        assert status is Status.STOPPING or stubborn.id in out
        assert not reports[-1].complete or stubborn.id in out
    seen = [agent.outcome for report in reports for agent in report.agents if agent.id == stubborn.id]
    assert list(dict.fromkeys(seen)) == [InterruptOutcome.STOPPING, InterruptOutcome.NOT_RESPONDING, InterruptOutcome.STOPPED]
    assert probe.marks("swallowed")
    record = await stubborn.get()
    assert (record.status, record.result) == (Status.STOPPED, "out at last")


async def test_I13_an_account_of_thousands_comes_in_pages_and_is_whole(pool: Pool) -> None:
    await pool.set_max_concurrent(5000)
    worker = ManualWorker(pool)
    await worker.join()
    handles = await pool.spawn_many([SpawnRequest(type="played")] * 5000)
    specs = [spec for _ in range(5) for spec in await worker.claim(1000)]
    assert len(specs) == 5000
    report = await pool.interrupt(wait=0)
    while await pool.gateway(calls.sweep(pool.prefix, report.interrupt_id, 500)):
        pass
    report = await pool.interrupt_report(report.interrupt_id)
    assert {agent.id for agent in report.agents} == {handle.id for handle in handles}
    assert len(report.agents) == 5000
    assert not report.complete
    for at in range(0, 5000, 500):
        ends = [calls.Settlement(spec.id, spec.token, Outcome.STOPPED) for spec in specs[at : at + 500]]
        await pool.gateway(calls.finish(pool.prefix, ends))
    report = await pool.interrupt_report(report.interrupt_id)
    assert (report.complete, report.outcomes()) == (True, {InterruptOutcome.STOPPED: 5000})
    await worker.leave()


def test_I13_an_agent_whose_lease_the_script_did_not_tell_is_not_called_stopped() -> None:
    """It tells those of 1 000 at most."""
    facts = ("*", "9", "0", "1000", "", "", "", "1", "")
    account = calls.Report(2000, 5000, 3000, False, facts, {"a": "w|", "b": "w|1500"}, (), "0")
    said = {agent.id: (agent.outcome, agent.elapsed_ms) for agent in read_report("i", account).agents}
    assert said == {"a": (InterruptOutcome.NOT_RESPONDING, 1000), "b": (InterruptOutcome.STOPPED, 500)}


@pytest.mark.usefixtures("quiet")
async def test_I9_a_clean_up_has_a_quarter_of_the_grace_before_it_is_cancelled_again(pool: Pool, workers: Workers, probe: ProbeLog) -> None:
    await workers.start(grace=2)
    stubborn = await pool.spawn("stubborn", {"seconds": 1.4})
    await until_begun(probe, [stubborn])
    await stubborn.abort()
    assert (await stubborn.wait(10)).status is Status.STOPPED
    told = [mark.at for mark in probe.marks("swallowed")]
    assert len(told) >= 2
    assert told[1] - told[0] > 0.4


@pytest.mark.usefixtures("quiet")
async def test_I13_the_permit_of_an_agent_that_does_not_respond_stays_held(pool: Pool, workers: Workers, probe: ProbeLog) -> None:
    await pool.set_max_concurrent(1)
    await workers.start(grace=30)
    stubborn = await pool.spawn("stubborn", {"seconds": 1.5})
    await until_begun(probe, [stubborn])
    report = await pool.interrupt(wait=0.2)
    assert not report.complete
    next_one = await pool.spawn("echo")
    stats = await pool.stats()
    assert (stats.active, stats.stopping, stats.queued) == (1, 1, 1)
    assert (await next_one.wait(10)).status is Status.COMPLETED
    out, begun = probe.marks("end")[0], probe.marks("begin")[1]
    assert (out.agent_id, begun.agent_id) == (stubborn.id, next_one.id)
    assert out.at <= begun.at


@pytest.mark.usefixtures("quiet")
async def test_I13_a_silent_worker_is_unreachable_until_its_lease_is_void(pool: Pool, workers: Workers, probe: ProbeLog) -> None:
    frozen = await workers.start()
    handles = await naps(pool, 2)
    await until_begun(probe, handles)
    [child] = frozen.children()
    await workers.start()
    os.kill(child, signal.SIGSTOP)
    report = await pool.interrupt(wait=0)
    began = time.monotonic()

    async def unreachable() -> InterruptReport | None:
        now = await pool.interrupt_report(report.interrupt_id)
        assert InterruptOutcome.STOPPED not in now.outcomes()
        return now if now.outcomes() == {InterruptOutcome.UNREACHABLE: 2} else None

    silent = cast("InterruptReport", await eventually(unreachable, "both are unreachable", LEASE))
    found = time.monotonic()
    for agent in silent.agents:
        assert agent.worker is not None
        assert agent.lease_void_ms is not None
        assert 0 < agent.lease_void_ms <= LEASE * 1000 / 2
    complete = await until_complete(pool, report)
    void = max(agent.lease_void_ms or 0 for agent in silent.agents) / 1000
    print(f"unreachable after {found - began:.2f} s, void {time.monotonic() - found:.2f} s later (announced: {void:.2f} s)")
    assert complete.outcomes() == {InterruptOutcome.STOPPED: 2}
    assert time.monotonic() - found > void - 0.25
    assert set(await statuses(handles)) == {Status.STOPPED}
    os.kill(child, signal.SIGCONT)
    await eventually(lambda: child not in frozen.children(), "the frozen process is gone")
    assert not probe.marks("end"), "its agents ran on although their lease was void"


@pytest.mark.usefixtures("quiet")
async def test_I13_an_agent_that_costs_its_process_its_life_is_stopped_then(pool: Pool, workers: Workers, probe: ProbeLog) -> None:
    worker = await workers.start(grace=0.5)
    [process] = worker.children()
    stubborn = await pool.spawn("stubborn", {"seconds": 60})
    [bystander] = await naps(pool, 1, "other")
    await until_begun(probe, [stubborn, bystander])
    assert await stubborn.abort() == "stopping"
    await round_trips(pool, 300)
    assert worker.children() == [process], "a bystander was ended with it"
    report = await pool.interrupt(kill=True)
    assert (report.complete, report.outcomes()) == (True, {InterruptOutcome.STOPPED: 2})
    assert process not in worker.children()
    assert [mark.agent_id for mark in probe.marks("end")] == [bystander.id]


@pytest.mark.timeout(300)
async def test_I14_with_100_000_queued_an_interrupt_takes_effect_at_once(tmp_path: Path, probe: ProbeLog) -> None:
    with server() as own:  # of its own: what it leaves behind would slow the others down
        async with Pool(own.url, name="crowd", max_concurrent=4, lease=LEASE) as pool:
            workers = Workers(pool, own.url, tmp_path, probe.path)
            try:
                await _interrupt_a_crowd(pool, workers, probe)
            finally:
                await workers.stop()


async def _interrupt_a_crowd(pool: Pool, workers: Workers, probe: ProbeLog) -> None:
    count = 100_000
    await workers.start()
    running = await naps(pool, 4, seconds=3600)  # longer than the crowd takes to come, however busy this machine is
    await until_begun(probe, running)
    queued = await naps(pool, count)
    assert (await pool.stats()).queued == count
    began = time.monotonic()
    await pool.gateway(calls.interrupt(pool.prefix, new_id(), "*", force=False, kill=False, reason="", by="test"))
    cutoff = time.monotonic() - began
    last = await queued[-1].get()
    assert last.status is Status.STOPPED
    assert last.ended_at is not None
    assert await cast("Awaitable[str]", pool.gateway.redis.hget(f"{pool.prefix}agent:{last.id}", "status")) == "queued", "swept already?"
    assert (await pool.stats()).queued == 0
    began = time.monotonic()
    fresh = await pool.spawn("echo", {"value": "after"})
    assert (await fresh.wait(20)).result == "after"
    next_spawn = time.monotonic() - began
    began = time.monotonic()
    report = await pool.interrupt(wait=0)
    call = time.monotonic() - began
    print(f"cutoff {cutoff * 1000:.1f} ms, interrupt(wait=0) {call * 1000:.1f} ms, next spawn to result {next_spawn * 1000:.0f} ms")
    assert cutoff < 0.25
    assert call < 0.5
    assert next_spawn < 2
    assert not report.complete
    first_id = (await history(pool, "interrupt"))[0].agent_id
    assert first_id is not None
    while await pool.gateway(calls.sweep(pool.prefix, first_id, 200)):
        continue
    account = await pool.interrupt_report(first_id)
    assert (account.complete, account.queued_stopped, account.outcomes()) == (True, count, {InterruptOutcome.STOPPED: 4})
    assert set(probe.started()) == {*(handle.id for handle in running), fresh.id}


@pytest.mark.timeout(180)
@pytest.mark.usefixtures("quiet")
async def test_one_interrupt_stops_a_thousand_running_agents_on_four_processes(pool: Pool, workers: Workers, probe: ProbeLog) -> None:
    await pool.set_max_concurrent(1000)
    await workers.start(processes=4, slots=250)
    handles = await naps(pool, 1000, seconds=600)
    await until_begun(probe, handles)
    began = time.monotonic()
    report = await pool.interrupt(reason="all of them")
    took = time.monotonic() - began
    slowest = max(agent.elapsed_ms for agent in report.agents)
    print(f"1 000 running agents on 4 processes: complete after {took:.2f} s, the slowest out after {slowest} ms")
    assert report.complete
    assert report.queued_stopped == 0
    assert report.outcomes() == {InterruptOutcome.STOPPED: 1000}
    assert {agent.id for agent in report.agents} == {handle.id for handle in handles}
    assert len({agent.worker for agent in report.agents}) == 4
    assert {mark.agent_id for mark in probe.marks("end")} == {handle.id for handle in handles}
