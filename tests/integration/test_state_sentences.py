"""S2 to S6: a stop is sticky, the first writer wins, times are ordered, and records are snapshots. (S1 is in `test_move_sentences`.)"""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from pydantic import ValidationError

from subagents import AbortAnswer, AgentStopped, Pool, Status
from subagents.scripts import calls
from subagents.scripts.replies import Code
from subagents.statuses import SETTLED, Outcome
from support.manual_worker import PlayedClock, stored_status
from support.play import LEASE, Play
from support.probe import ProbeLog
from support.scenes import STOP_AGENTS, kinds_of, until_begun, until_status
from support.waiting import eventually
from support.workers import Workers


@pytest.mark.usefixtures("quiet")
async def test_S2_a_result_that_comes_after_the_stop_is_kept_and_the_status_is_stopped(
    pool: Pool, workers: Workers, probe: ProbeLog
) -> None:
    await workers.start(agents=STOP_AGENTS)
    aborted, interrupted = [await pool.spawn("last_words", {"text": text}) for text in ("by abort", "by interrupt")]
    await until_begun(probe, [aborted, interrupted])
    assert await aborted.abort("enough") is AbortAnswer.STOPPING
    await aborted.wait(10)
    await pool.interrupt(reason="enough")
    for handle, text in ((aborted, "by abort"), (interrupted, "by interrupt")):
        record = await handle.wait(10)
        assert (record.status, record.result, record.stop_reason, record.stopped_by) == (Status.STOPPED, text, "enough", "test")
        kinds = await kinds_of(pool, handle)
        assert kinds in (["created", "admitted", "started", *stopping, "stopped"] for stopping in (["stopping"], []))
        with pytest.raises(AgentStopped) as stopped:
            await handle.result()
        assert stopped.value.record.result == text


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("lent", [False, True])
async def test_S2_stopping_is_sticky(pool: Pool, lent: bool) -> None:
    play = Play(pool)
    await play.reach(Status.WAITING if lent else Status.RUNNING)
    assert await play.handle.abort("first") is AbortAnswer.STOPPING
    assert await play.handle.abort("second") is AbortAnswer.STOPPING
    assert await play.worker.lend(play.run) is Code.STOP
    assert await play.worker.take_back(play.run) is Code.STOP
    assert (await play.worker.renew(play.run, housekeeping=10)).codes == ("stop",)
    assert await stored_status(pool, play.handle) is Status.STOPPING
    stats = await pool.stats()
    assert (stats.stopping, stats.active, stats.waiting) == (1, 0 if lent else 1, 1 if lent else 0)
    await play.finish(Outcome.COMPLETED)
    record = await play.handle.get()
    assert (record.status, record.result, record.stop_reason) == (Status.STOPPED, 1, "first")
    await play.clear()


@pytest.mark.usefixtures("quiet")
async def test_S2_a_stopped_agent_is_not_run_again_whatever_attempts_are_left(pool: Pool) -> None:
    for outcome in (Outcome.HANDED_BACK, None):
        play = Play(pool)
        await play.reach(Status.STOPPING)
        if outcome is None:
            await play.worker.lose()
        else:
            await play.finish(outcome)
        assert await stored_status(pool, play.handle) is Status.STOPPED
        await play.clear()


@pytest.mark.usefixtures("quiet")
async def test_S3_the_first_terminal_writer_wins(pool: Pool) -> None:
    play = Play(pool)
    await play.reach(Status.RUNNING)
    outcomes = [outcome for outcome in Outcome if outcome is not Outcome.HANDED_BACK]
    replies = await asyncio.gather(*(play.worker.finish(play.run, outcome, result=f'"{outcome}"') for outcome in outcomes))
    winners = [outcome for outcome, reply in zip(outcomes, replies, strict=True) if reply.code is Code.SETTLED]
    assert len(winners) == 1
    assert {(reply.code, reply.text(0)) for reply in replies} == {(Code.SETTLED, winners[0]), (Code.STALE, winners[0])}
    record = await play.handle.get()
    assert (record.status, record.result) == (Status(winners[0].value), winners[0].value)
    clock = PlayedClock(pool)
    await clock.stop()
    await clock.move(1000)
    for outcome in Outcome:
        reply = await play.worker.finish(play.run, outcome)
        assert (reply.code, reply.text(0)) == (Code.SETTLED if outcome is winners[0] else Code.STALE, winners[0])
    assert await play.handle.abort() is AbortAnswer.ALREADY_TERMINAL
    await pool.interrupt(force=True)
    await play.worker.lose()
    await clock.pass_leases(LEASE)
    await pool.gateway(calls.reap(pool.prefix, 10))
    assert await play.handle.get() == record
    assert [kind for kind in await kinds_of(pool, play.handle) if kind in set(SETTLED)] == [winners[0].value]
    await play.clear()


@pytest.mark.usefixtures("quiet")
async def test_S3_an_older_start_is_stale(pool: Pool) -> None:
    play = Play(pool)
    await play.reach(Status.RUNNING)
    old = play.run
    await play.finish(Outcome.HANDED_BACK)
    await play.start()
    assert play.run.token != old.token
    reply = await play.worker.finish(old, Outcome.COMPLETED)
    assert (reply.code, reply.text(0)) == (Code.STALE, "running")
    assert (await play.worker.renew(old)).codes == ("stale",)
    assert await stored_status(pool, play.handle) is Status.RUNNING
    await play.clear()


@pytest.mark.usefixtures("quiet")
async def test_S4_the_times_are_all_there_and_ordered(pool: Pool, workers: Workers, probe: ProbeLog) -> None:
    await pool.set_max_concurrent(2)
    await workers.start()
    done = [await pool.spawn("nap", {"seconds": 0.02}) for _ in range(10)]
    stopped = await pool.spawn("nap", {"seconds": 60})
    await until_begun(probe, [stopped])
    await pool.set_max_concurrent(0)
    queued = await pool.spawn("nap")
    await pool.interrupt()
    for handle in done:
        record = await handle.wait(10)
        times = [record.enqueued_at, record.admitted_at, record.started_at, record.ended_at]
        assert all(times)
        assert times == sorted(times, key=lambda at: at or record.enqueued_at)
        assert all(at is not None and at.tzinfo is not None for at in times)
        assert record.stop_requested_at is None
    record = await stopped.wait(10)
    times = [record.enqueued_at, record.admitted_at, record.started_at, record.stop_requested_at, record.ended_at]
    assert all(times)
    assert times == sorted(times, key=lambda at: at or record.enqueued_at)
    record = await queued.get()
    assert (record.admitted_at, record.started_at) == (None, None)
    assert record.stop_requested_at is not None
    assert record.ended_at is not None
    assert record.enqueued_at <= record.stop_requested_at <= record.ended_at


@pytest.mark.usefixtures("quiet")
async def test_S4_the_times_are_ordered_although_the_clock_jumps_back(pool: Pool) -> None:
    clock = PlayedClock(pool)
    await pool.stats()
    await clock.stop()
    play = Play(pool)
    for step in (play.spawn, play.start, play.lend, play.take_back, play.abort, lambda: play.finish(Outcome.STOPPED)):
        await clock.move(-3_600_000)
        await step()
    record = await play.handle.get()
    times = [record.enqueued_at, record.admitted_at, record.started_at, record.stop_requested_at, record.ended_at]
    assert all(times)
    assert times == sorted(times, key=lambda at: at or record.enqueued_at)
    assert record.status is Status.STOPPED
    await play.clear()


@pytest.mark.usefixtures("quiet")
async def test_S5_what_an_agent_says_is_its_progress(pool: Pool, workers: Workers) -> None:
    """As far as it is built: `emit` and progress. Usage and its totals come with `ctx.report`."""
    await workers.start()
    handle = await pool.spawn("talk", {"lines": 3, "seconds": 0.3})

    async def progress() -> object:
        return (await handle.get()).progress

    await eventually(progress, "it has said something")
    record = await handle.wait(10)
    assert record.progress == {"done": 3, "total": 3}
    said = [event async for event in handle.events()]
    assert [event.data for event in said if event.kind == "progress"] == [{"done": n, "total": 3} for n in (1, 2, 3)]
    assert said[-1].kind == "completed"


@pytest.mark.usefixtures("quiet")
async def test_S5_nothing_is_said_after_the_end_or_by_an_older_start(pool: Pool) -> None:
    play = Play(pool)
    await play.reach(Status.RUNNING)
    for token, expected in (("of another start", Code.STALE), (play.run.token, Code.EMITTED)):
        assert (await pool.gateway(calls.emit(pool.prefix, play.handle.id, token, [("note", '"hello"')]))).code is expected
    await play.finish(Outcome.COMPLETED)
    late = await pool.gateway(calls.emit(pool.prefix, play.handle.id, play.run.token, [("note", '"late"')]))
    assert late.code is Code.STALE
    assert (await play.handle.get()).progress == "hello"
    await play.clear()


@pytest.mark.usefixtures("quiet")
async def test_S6_a_record_is_a_snapshot(pool: Pool, workers: Workers) -> None:
    await workers.start()
    handle = await pool.spawn("echo", {"value": {"deep": [1, {"deeper": 2}]}}, scopes=["s"], description="as it was")
    early = await handle.get()
    record = await handle.wait(10)
    assert (early.status.settled, early.ended_at) == (False, None) or early.status is Status.COMPLETED
    for field, value in (("status", "running"), ("description", "another"), ("result", None)):
        with pytest.raises(ValidationError):
            setattr(record, field, value)
    cast("dict[str, list[object]]", record.result)["deep"].append("mine")
    again = await handle.get()
    assert again.result == {"deep": [1, {"deeper": 2}]}
    assert isinstance(record.scopes, tuple)
    assert (await pool.list(scope="s")).records[0] == again
    with pytest.raises(ValidationError):
        setattr(record.usage, "turns", 7)  # noqa: B010 that it cannot be set is the point


@pytest.mark.usefixtures("quiet")
async def test_S6_a_live_record_does_not_follow_its_agent(pool: Pool, workers: Workers) -> None:
    await workers.start()
    handle = await pool.spawn("nap", {"seconds": 60})
    await until_status(handle, Status.RUNNING)
    live = await handle.get()
    await handle.abort()
    assert (await handle.wait(10)).status is Status.STOPPED
    assert (live.status, live.ended_at) == (Status.RUNNING, None)
