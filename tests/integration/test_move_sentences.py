"""S1: the moves of the table are the only ones; every other attempt is refused with the actual status."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from subagents import AbortAnswer, AgentHandle, Pool, PoolEvent, Status
from subagents.keys import new_id
from subagents.scripts import calls
from subagents.scripts.replies import Code
from subagents.statuses import MOVES, SETTLED, Outcome
from support.history import history
from support.manual_worker import stored, stored_status
from support.play import Play

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


Move = Callable[[Play], Awaitable[None]]


def ends(outcome: Outcome) -> Move:
    return lambda play: play.finish(outcome)


ON_WORKER_MOVES: dict[Status, Move] = {
    Status.STOPPING: Play.abort,
    Status.ERROR: ends(Outcome.ERROR),
    Status.QUEUED: ends(Outcome.HANDED_BACK),
}
PLAYED: dict[Status | None, dict[Status, Move]] = {
    None: {Status.QUEUED: Play.spawn},
    Status.QUEUED: {Status.RUNNING: Play.start, Status.STOPPED: Play.abort, Status.ERROR: Play.lose_delivery},
    Status.RUNNING: {
        Status.WAITING: Play.lend,
        Status.COMPLETED: ends(Outcome.COMPLETED),
        Status.STEERED: ends(Outcome.STEERED),
        Status.ABORTED: ends(Outcome.ABORTED),
        **ON_WORKER_MOVES,
    },
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


@pytest.mark.parametrize("outcome", [Outcome.COMPLETED, Outcome.STEERED, Outcome.ABORTED], ids=str)
async def test_S1_an_end_whose_returned_permit_was_lost_goes_through_running(pool: Pool, outcome: Outcome) -> None:
    """A failover may lose that a lent permit was taken back; the agent went on all the same, and its end is accepted."""
    play = Play(pool)
    await play.reach(Status.WAITING)
    reply = await play.worker.finish(play.run, outcome, result="1")
    assert (reply.code, reply.text(0)) == (Code.SETTLED, outcome)
    assert moves_of(await history(pool), play.handle)[-3:] == [Status.WAITING, Status.RUNNING, Status(outcome.value)]
    await play.clear()


@pytest.mark.parametrize("source", [Status.RUNNING, Status.WAITING], ids=str)
@pytest.mark.parametrize("outcome", [Outcome.COMPLETED, Outcome.ERROR, Outcome.STOPPED, Outcome.HANDED_BACK, None], ids=str)
async def test_S1_an_agent_that_an_interrupt_hit_goes_through_stopping(pool: Pool, source: Status, outcome: Outcome | None) -> None:
    """Also if it is out, or its worker is gone (None), before anybody has come to mark it."""
    play = Play(pool)
    await play.reach(source)
    await _interrupt(play)
    await (play.worker.lose() if outcome is None else play.finish(outcome))
    record = await play.handle.get()
    assert (record.status, record.stopped_by, record.result) == (Status.STOPPED, "test", None if outcome is None else 1)
    assert record.stop_requested_at is not None
    assert moves_of(await history(pool), play.handle)[-3:] == [source, Status.STOPPING, Status.STOPPED]
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
