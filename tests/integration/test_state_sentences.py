"""S1 to S6: the moves of the table are the only ones, a stop is sticky, the first writer wins, and records are snapshots."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from subagents import AbortAnswer, AgentHandle, AgentStopped, Pool, PoolEvent, Status
from subagents.keys import new_id
from subagents.scripts import calls
from subagents.scripts.calls import Spec
from subagents.scripts.replies import Code
from subagents.statuses import MOVES, SETTLED, Outcome
from support.history import history
from support.manual_worker import ManualWorker, PlayedClock, stored, stored_status
from support.probe import ProbeLog
from support.scenes import STOP_AGENTS, kinds_of, until_begun, until_status
from support.waiting import eventually
from support.workers import Workers

LEASE = 3.0
AFTER_EVENT = {
    "created": Status.QUEUED,
    "started": Status.RUNNING,
    "adopted": Status.RUNNING,
    "waiting": Status.WAITING,
    "resumed": Status.RUNNING,
    "stopping": Status.STOPPING,
    "lost": Status.QUEUED,
    "redispatched": Status.QUEUED,
    **{status.value: status for status in SETTLED},
}
"""Where an agent stands after an event of its own; the other kinds move nobody."""


class Play:
    """One agent, and everything that can be done to it, call by call."""

    def __init__(self, pool: Pool) -> None:
        self.pool, self.worker = pool, ManualWorker(pool)
        self.handle = AgentHandle(pool, new_id())
        self.spec: Spec | None = None

    async def spawn(self) -> None:
        await self.worker.join()
        self.handle = await self.pool.spawn("played", retries=1)

    async def start(self) -> None:
        [self.spec] = await self.worker.claim()

    async def lend(self) -> None:
        await self.worker.lend(self.run)

    async def take_back(self) -> None:
        await self.worker.take_back(self.run)

    async def abort(self) -> None:
        await self.handle.abort()

    async def finish(self, outcome: Outcome) -> None:
        await self.worker.finish(self.run, outcome, result="1")

    async def hit_and_finish(self) -> None:
        """An interrupt hits it, and it is out before anybody has come to mark it."""
        interrupt = calls.interrupt(self.pool.prefix, new_id(), "*", force=False, kill=False, reason="", by="test")
        await self.pool.gateway(interrupt)
        await self.finish(Outcome.COMPLETED)

    async def lose_delivery(self) -> None:
        """No worker ever gets it: arq's job vanishes, as often as it is dispatched again."""
        clock = PlayedClock(self.pool)
        await clock.stop()
        while await stored_status(self.pool, self.handle) is Status.QUEUED:
            token = (await stored(self.pool, self.handle))["token"]
            await cast("Awaitable[int]", self.pool.gateway.redis.delete(f"arq:job:{{{self.pool.name}}}:{self.handle.id}:{token}"))
            await clock.pass_leases(LEASE)
            await self.worker.join()
            await self.pool.gateway(calls.reap(self.pool.prefix, 10))

    @property
    def run(self) -> Spec:
        """The run under way, or one that never was, for an agent that has not started."""
        if self.spec is not None:
            return self.spec
        return Spec(self.handle.id, "no token", "played", 0, "null", (), (), False, False, None, None, 1, 1, 0, None, "", None)

    async def reach(self, status: Status | None) -> None:
        """Bring it there by legal moves."""
        if status is None:
            await self.worker.join()
            return
        await self.spawn()
        if status is Status.QUEUED:
            return
        await self.start()
        match status:
            case Status.RUNNING:
                return
            case Status.WAITING:
                await self.lend()
            case Status.STOPPING:
                await self.abort()
            case Status.STOPPED:
                await self.abort()
                await self.finish(Outcome.STOPPED)
            case _:
                await self.finish(Outcome(status.value))
        assert await stored_status(self.pool, self.handle) is status

    async def clear(self) -> None:
        """Leave nothing behind."""
        await self.abort()
        if self.spec is not None:
            await self.finish(Outcome.STOPPED)
        await self.worker.leave()
        await self.pool.interrupt(force=True, wait=1)


Move = Callable[[Play], Awaitable[None]]


def ends(outcome: Outcome) -> Move:
    return lambda play: play.finish(outcome)


ON_WORKER_MOVES: dict[Status, Move] = {
    Status.STOPPING: Play.abort,
    Status.STOPPED: Play.hit_and_finish,
    Status.COMPLETED: ends(Outcome.COMPLETED),
    Status.STEERED: ends(Outcome.STEERED),
    Status.ABORTED: ends(Outcome.ABORTED),
    Status.ERROR: ends(Outcome.ERROR),
    Status.QUEUED: ends(Outcome.HANDED_BACK),
}
PLAYED: dict[Status | None, dict[Status, Move]] = {
    None: {Status.QUEUED: Play.spawn},
    Status.QUEUED: {Status.RUNNING: Play.start, Status.STOPPED: Play.abort, Status.ERROR: Play.lose_delivery},
    Status.RUNNING: {Status.WAITING: Play.lend, **ON_WORKER_MOVES},
    Status.WAITING: {Status.RUNNING: Play.take_back, **ON_WORKER_MOVES},
    Status.STOPPING: {Status.STOPPED: ends(Outcome.COMPLETED)},
}


def legal(moves: list[Status]) -> None:
    """Every step of a history is in the table."""
    before: Status | None = None
    for after in moves:
        if after is not before:
            assert after in MOVES.get(before, {}), f"{before} -> {after} in {moves}"
        before = after


def moves_of(events: list[PoolEvent], handle: AgentHandle) -> list[Status]:
    return [AFTER_EVENT[event.kind] for event in events if event.agent_id == handle.id and event.kind in AFTER_EVENT]


def test_S1_every_move_of_the_table_is_played() -> None:
    assert {source: set(targets) for source, targets in PLAYED.items()} == {source: set(targets) for source, targets in MOVES.items()}


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(
    ("source", "target"), [(source, target) for source, targets in MOVES.items() for target in targets], ids=lambda status: str(status)
)
async def test_S1_every_legal_move_happens(pool: Pool, source: Status | None, target: Status) -> None:
    play = Play(pool)
    await play.reach(source)
    assert await stored_status(pool, play.handle) is source
    await PLAYED[source][target](play)
    assert await stored_status(pool, play.handle) is target
    moves = moves_of(await history(pool), play.handle)
    legal(moves)
    assert moves[-1] is target
    await play.clear()


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("status", list(Status), ids=str)
async def test_S1_every_other_attempt_is_refused_with_the_actual_status(pool: Pool, status: Status) -> None:
    play = Play(pool)
    await play.reach(status)
    before, told = await stored(pool, play.handle), len(await history(pool))
    answers: dict[str, str] = {}
    if Status.RUNNING not in MOVES.get(status, {}) and status is not Status.RUNNING:
        reply = await play.worker.start(play.run.id, play.run.token)
        answers["start"] = f"{reply.code} {reply.text(0)}"
    if Status.WAITING not in MOVES.get(status, {}):
        answers["lend"] = await play.worker.lend(play.run)
    if status is not Status.WAITING:
        answers["take back"] = await play.worker.take_back(play.run)
    if status in SETTLED or status is Status.QUEUED:
        for outcome in Outcome:
            if outcome.value != status:
                reply = await play.worker.finish(play.run, outcome)
                answers[f"finish as {outcome}"] = f"{reply.code} {reply.text(0)}"
    reply = await play.worker.finish(play.run, Outcome.ERROR, token="of another start")
    answers["finish by another"] = f"{reply.code} {reply.text(0)}"
    if status in SETTLED:
        assert await play.handle.abort() is AbortAnswer.ALREADY_TERMINAL
        reply = await pool.gateway(calls.abort(pool.prefix, play.handle.id, "", "test"))
        answers["abort"] = f"{reply.code} {reply.text(0)}"
    assert await stored(pool, play.handle) == before
    assert len(await history(pool)) == told
    for attempt, answer in answers.items():
        right = {"stale", f"stale {status}", f"already_terminal {status}", str(status)}
        if status is Status.STOPPING:
            right.add("stop")
        assert answer in right, f"{attempt}: {answer}"
    assert all(answer.endswith(f" {status}") for attempt, answer in answers.items() if attempt not in ("lend", "take back"))
    await play.clear()


async def test_S1_a_finish_whose_start_was_lost_goes_through_running(pool: Pool) -> None:
    """A failover may lose a start that was acknowledged; the agent ran all the same, and its end is accepted."""
    play = Play(pool)
    await play.spawn()
    token = (await stored(pool, play.handle))["token"]
    reply = await pool.gateway(calls.finish(pool.prefix, [calls.Settlement(play.handle.id, token, Outcome.COMPLETED, result="1")]))
    assert (reply[0].code, reply[0].text(0)) == (Code.SETTLED, "completed")
    record = await play.handle.get()
    assert record.started_at is not None
    assert record.attempt == 1
    moves = moves_of(await history(pool), play.handle)
    legal(moves)
    assert moves == [Status.QUEUED, Status.RUNNING, Status.COMPLETED]
    await play.clear()


STEPS: dict[str, Move] = {
    "claim": lambda play: _claim_any(play),
    "lend": Play.lend,
    "take back": Play.take_back,
    "abort": Play.abort,
    "renew": lambda play: _renew(play),
    "interrupt": lambda play: _interrupt(play),
    "sweep": lambda play: _sweep(play),
    "lose": lambda play: play.worker.lose(),
    "join": lambda play: play.worker.join(),
    **{f"finish as {outcome}": ends(outcome) for outcome in Outcome},
}


async def _claim_any(play: Play) -> None:
    for spec in await play.worker.claim():
        play.spec = spec


async def _renew(play: Play) -> None:
    await play.worker.renew(play.run, housekeeping=10)


async def _interrupt(play: Play) -> None:
    await play.pool.gateway(calls.interrupt(play.pool.prefix, new_id(), "*", force=False, kill=False, reason="", by="test"))


async def _sweep(play: Play) -> None:
    await play.pool.gateway(calls.sweep(play.pool.prefix, "", 10))


COMMON = ["claim", "lend", "take back", "renew", "lose", "join", "finish as handed_back"]


@pytest.mark.usefixtures("quiet")
@given(steps=st.lists(st.sampled_from(COMMON) | st.sampled_from(sorted(STEPS)), min_size=1, max_size=12))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_S1_no_order_of_calls_makes_another_move(pool: Pool, steps: list[str]) -> None:
    play = Play(pool)
    since = await _newest(pool)
    await play.spawn()
    for step in steps:
        await STEPS[step](play)
        moves = moves_of([event async for event in pool.events(since, follow=False)], play.handle)
        legal(moves)
        assert await stored_status(pool, play.handle) is moves[-1], f"{step} wrote no event"
    await play.clear()


async def _newest(pool: Pool) -> str:
    entries = await cast("Awaitable[list[tuple[str, object]]]", pool.gateway.redis.xrevrange(f"{pool.prefix}events", count=1))
    return entries[0][0] if entries else "0"


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
