"""The sentences of the pool, P1 to P19, one by one, with real worker processes on a real server."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest
from redis.asyncio import Redis

from subagents import (
    AbortAnswer,
    AgentExpired,
    AgentFailed,
    AgentHandle,
    AgentStopped,
    BypassRefused,
    ErrorKind,
    InputTooLarge,
    InvalidArgument,
    InvalidInput,
    KeyConflict,
    Pool,
    PoolClosed,
    PoolHalted,
    SpawnRequest,
    Status,
    UnknownAgent,
    UnknownType,
    WaitTimeout,
)
from subagents.scripts import calls, loader
from support.history import assert_hard_cap, assert_settled_once, history
from support.probe import ProbeLog
from support.waiting import eventually
from support.workers import Workers

AGENTS = Path(__file__).parent.parent / "agents"
ODD, OTHER = str(AGENTS / "odd_agents.py"), str(AGENTS / "other_agents.py")
TERMINAL = {"completed", "steered", "aborted", "stopped", "error"}

quiet = pytest.mark.usefixtures("quiet")


@pytest.fixture
async def second(redis_url: str, pool: Pool) -> AsyncIterator[Pool]:
    """Another client of the same pool."""
    async with Pool(redis_url, name=pool.name, by="second") as opened:
        yield opened


async def set_directly(pool: Pool, **settings: int) -> None:
    """Stored settings that have no call of their own."""
    await cast("Awaitable[int]", pool.gateway.redis.hset(f"{pool.prefix}config", mapping={**settings}))


async def everything(url: str, pool: Pool) -> dict[bytes, bytes]:
    """Every key of the pool and of its carrier, as the server would dump it."""
    async with Redis.from_url(url) as redis:  # pyright: ignore[reportUnknownMemberType]
        keys = [key async for key in cast("AsyncIterator[bytes]", redis.scan_iter(match=f"*{{{pool.name}}}*", count=1000))]
        return {key: cast("bytes", await redis.dump(key)) for key in sorted(keys)}


async def pretend_worker(pool: Pool, *types: str) -> None:
    """A worker joins that takes nothing, so that agents are queued and admitted and stay so (until its lease is over)."""
    await pool.gateway(calls.join(pool.prefix, "pretended", "{}", dict.fromkeys(types, "{}")))


async def lives(pool: Pool, agent_id: str, status: Status = Status.RUNNING) -> None:
    async def reached() -> bool:
        return (await pool.get(agent_id)).status is status

    await eventually(reached, f"{agent_id} is {status}")


async def settled(handles: list[AgentHandle]) -> list[Status]:
    return [record.status for record in await asyncio.gather(*(handle.wait(30) for handle in handles))]


async def kinds_of(pool: Pool, agent_id: str) -> list[str]:
    return [event.kind for event in await history(pool) if event.agent_id == agent_id]


def counted(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Every script call of this client from now on."""
    sent: list[object] = []
    evalsha = pool.gateway.redis.evalsha

    def counting(*args: Any) -> Any:
        sent.append(args[0])
        return evalsha(*args)

    monkeypatch.setattr(pool.gateway.redis, "evalsha", counting)
    return sent


# P1 ----------------------------------------------------------------------------------------------------------------


async def test_P1_a_spawn_is_one_step_that_writes_record_place_and_event(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    await pool.set_max_concurrent(0)
    await pretend_worker(pool, "echo")
    sent = counted(pool, monkeypatch)
    handle = await asyncio.wait_for(pool.spawn("echo", {"value": 1}, description="a line"), 5)
    assert len(sent) == 1
    record = await handle.get()
    assert (record.status, record.queue_position, record.waiting_reason, record.description) == (Status.QUEUED, 1, "limit", "a line")
    assert await kinds_of(pool, handle.id) == ["created"]
    assert (await pool.stats()).queued == 1
    await pool.interrupt()


async def test_P1_a_batch_is_one_step_and_all_or_nothing(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    await pool.set_max_concurrent(0)
    await pretend_worker(pool, "echo")
    sent = counted(pool, monkeypatch)
    handles = await pool.spawn_many([SpawnRequest(type="echo", input={"value": number}) for number in range(100)])
    assert len(sent) == 1
    assert [record.seq for record in await asyncio.gather(*(handle.get() for handle in handles))] == list(range(1, 101))
    with pytest.raises(BypassRefused):
        await pool.spawn_many([SpawnRequest(type="echo"), SpawnRequest(type="echo", bypass_queue=True)])
    assert (await pool.stats()).queued == 100
    await pool.interrupt()


async def test_P1_the_same_key_from_two_clients_at_once_is_one_agent(pool: Pool, second: Pool) -> None:
    await pool.set_max_concurrent(0)
    await pretend_worker(pool, "echo", "nap")
    handles = await asyncio.gather(*(client.spawn("echo", {"value": 1}, key="order-17") for client in (pool, second) * 20))
    assert len({handle.id for handle in handles}) == 1
    assert len(await history(pool, "created")) == 1
    assert (await pool.stats()).queued == 1
    await pool.interrupt()


@pytest.mark.parametrize(
    "other",
    [
        {"input": {"value": 2}},
        {"type": "nap"},
        {"scopes": ["elsewhere"]},
        {"timeout": 5},
        {"stall_timeout": 5},
        {"retries": 1},
        {"on_interrupt": "survive"},
    ],
    ids=lambda other: next(iter(other)),
)
async def test_P1_the_same_key_with_another_payload_is_refused(pool: Pool, second: Pool, other: dict[str, Any]) -> None:
    await pool.set_max_concurrent(0)
    first: dict[str, Any] = {"type": "echo", "input": {"value": 1}}
    handle = await pool.spawn(**first, key="order-17")
    with pytest.raises(KeyConflict, match="order-17") as refused:
        await second.spawn(**{**first, **other}, key="order-17")
    assert refused.value.agent_id == handle.id
    assert len(await history(pool, "created")) == 1
    await pool.interrupt()


async def test_P1_the_same_key_twice_in_one_batch(pool: Pool) -> None:
    await pool.set_max_concurrent(0)
    await pretend_worker(pool, "echo", "nap")
    first, second = await pool.spawn_many(
        [SpawnRequest(type="echo", input=1, key="twice"), SpawnRequest(type="echo", input=1, key="twice")]
    )
    assert first == second
    with pytest.raises(KeyConflict):
        await pool.spawn_many([SpawnRequest(type="echo", input=1, key="other"), SpawnRequest(type="echo", input=2, key="other")])
    assert len(await history(pool, "created")) == 1
    await pool.interrupt()


async def test_P1_a_spawn_whose_reply_is_lost_spawns_once(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    evalsha, lost = pool.gateway.redis.evalsha, list[object]()

    async def loses_the_first(*args: Any) -> Any:
        reply = await cast("Awaitable[object]", evalsha(*args))
        if not lost:
            lost.append(reply)
            raise ConnectionResetError("the reply is lost")
        return reply

    monkeypatch.setattr(pool.gateway.redis, "evalsha", loses_the_first)
    handles = await pool.spawn_many([SpawnRequest(type="echo"), SpawnRequest(type="echo", key="k")])
    assert lost
    assert [event.agent_id for event in await history(pool, "created")] == [handle.id for handle in handles]
    await pool.interrupt()


async def test_P1_ids_are_never_the_callers(pool: Pool) -> None:
    with pytest.raises(TypeError):
        await pool.spawn("echo", id="mine")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(InvalidArgument, match="id"):
        SpawnRequest.of(type="echo", id="mine")
    assert len({(await pool.spawn("echo")).id for _ in range(20)}) == 20
    await pool.interrupt()


@quiet
async def test_P1_a_key_is_remembered_as_long_as_the_record_or_the_tombstone(pool: Pool, workers: Workers, probe: ProbeLog) -> None:
    await workers.start()
    await set_directly(pool, keep_tombstone=1500)
    first = await pool.spawn("echo", {"value": 1}, key="order-17")
    assert await first.result(10) == 1
    assert await (await pool.spawn("echo", {"value": 1}, key="order-17")).result(10) == 1
    assert await pool.purge(0) == 1
    again = await pool.spawn("echo", {"value": 1}, key="order-17")
    assert again == first
    with pytest.raises(AgentExpired):
        await again.wait(5)
    assert probe.started() == [first.id]

    async def forgotten() -> bool:
        return (await pool.spawn("echo", {"value": 1}, key="order-17")) != first

    await eventually(forgotten, "the key is forgotten with the tombstone")
    with pytest.raises(UnknownAgent):
        await first.get()
    assert await pool.wait_idle(timeout=10)
    assert len(probe.started()) == 2


# P2 and P3 ---------------------------------------------------------------------------------------------------------


@quiet
async def test_P2_events_of_one_agent_are_in_order_and_nothing_follows_the_terminal_one(pool: Pool, workers: Workers) -> None:
    await workers.start(processes=2)
    calls: list[tuple[str, Any]] = [("nap", {"seconds": 0.02}), ("fail", None), ("echo", None), ("nap", {"seconds": 0.3})]
    handles = [await pool.spawn(*calls[number % 4]) for number in range(80)]
    for handle in handles[3::8]:
        await handle.abort()
    assert await pool.wait_idle(timeout=30)
    events = await history(pool)
    assert_settled_once(events)
    assert_hard_cap(events)
    rank = {"created": 0, "admitted": 1, "started": 2, "stopping": 3} | dict.fromkeys(TERMINAL, 4)
    for handle in handles:
        ranks = [rank[event.kind] for event in events if event.agent_id == handle.id]
        assert ranks == sorted(set(ranks)), f"{handle} has events out of order: {ranks}"
        assert (ranks[0], ranks[-1]) == (0, 4)
    assert {event.kind for event in events} >= {"completed", "error", "stopped"}


ELSEWHERE = """
import asyncio, sys
from subagents import Pool

async def main(url, name, agent_id):
    async with Pool(url, name=name) as pool:
        print("waits", flush=True)
        print((await pool.handle(agent_id).wait(30)).result)

asyncio.run(main(*sys.argv[1:]))
"""


@quiet
async def test_P3_a_queued_agent_is_awaitable_from_any_process(pool: Pool, second: Pool, redis_url: str, workers: Workers) -> None:
    handle = await pool.spawn("echo", {"value": "from afar"})
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", ELSEWHERE, redis_url, pool.name, handle.id, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    here, there = asyncio.create_task(handle.wait()), asyncio.create_task(second.handle(handle.id).wait())
    assert (await asyncio.wait_for(process.stdout.readline(), 20)).strip() == b"waits"
    assert not here.done()
    await workers.start()
    assert [(await asyncio.wait_for(task, 20)).result for task in (here, there)] == ["from afar"] * 2
    assert (await asyncio.wait_for(process.stdout.read(), 20)).strip() == b"from afar"
    assert await process.wait() == 0


# P4 ----------------------------------------------------------------------------------------------------------------


@quiet
async def test_P4_run_returns_the_record_whatever_the_outcome(pool: Pool, workers: Workers) -> None:
    await workers.start()
    assert (await pool.run("echo", {"value": 7})).result == 7
    failed = await pool.run("fail", {"text": "sorry"})
    assert (failed.status, failed.error_kind) == (Status.ERROR, ErrorKind.AGENT_ERROR)
    running = asyncio.create_task(pool.run("nap", {"seconds": 60}, scopes=["x"]))
    [record] = await eventually(lambda: pool.list(scope="x", status="running"), "it runs")
    await pool.abort(record.id, "enough")
    stopped = await asyncio.wait_for(running, 10)
    assert (stopped.status, stopped.stop_reason, stopped.stopped_by) == (Status.STOPPED, "enough", "test")


@quiet
async def test_P4_cancelling_run_aborts_its_agent(pool: Pool, workers: Workers) -> None:
    await workers.start()
    running = asyncio.create_task(pool.run("nap", {"seconds": 60}))
    [record] = await eventually(lambda: pool.list(status="running"), "it runs")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    ended = await pool.handle(record.id).wait(10)
    assert (ended.status, ended.stop_reason) == (Status.STOPPED, "run() was cancelled")


async def test_P4_cancelling_run_while_it_spawns_leaves_no_agent_behind(pool: Pool) -> None:
    await pool.set_max_concurrent(0)
    await pretend_worker(pool, "echo", "nap")
    await pool.stats()
    for turns in range(30):
        running = asyncio.create_task(pool.run("nap", {"seconds": 60}))
        for _ in range(turns):
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert (await pool.stats()).queued == 0
    for record in await pool.list(limit=100):
        assert record.status is Status.STOPPED


@quiet
async def test_P4_cancelling_wait_or_result_does_not_touch_the_agent(pool: Pool, workers: Workers) -> None:
    await workers.start()
    handle = await pool.spawn("nap", {"seconds": 0.6})
    await lives(pool, handle.id)
    waits: list[Callable[[], Awaitable[object]]] = [handle.wait, handle.result, lambda: pool.wait_idle()]
    for wait in waits:
        task = asyncio.ensure_future(wait())
        await asyncio.wait({task}, timeout=0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert (await handle.get()).status is Status.RUNNING
    assert (await handle.wait(10)).status is Status.COMPLETED


async def test_P4_a_cancellation_that_the_redis_client_swallows_is_raised_all_the_same(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """redis-py sends inside `asyncio.wait_for`, which before Python 3.12 may lose a cancellation (bpo-37658)."""
    evalsha, swallowed = pool.gateway.redis.evalsha, list[BaseException]()
    handle = await pool.spawn("never")
    assert await pool.wait_idle(timeout=0) is False

    async def swallows(*args: Any) -> Any:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError as lost:
            swallowed.append(lost)
        return await cast("Awaitable[object]", evalsha(*args))

    monkeypatch.setattr(pool.gateway.redis, "evalsha", swallows)
    waiting = asyncio.create_task(pool.wait_idle())
    await asyncio.wait({waiting}, timeout=0.05)
    waiting.cancel()
    await asyncio.wait({waiting}, timeout=5)
    assert swallowed
    assert waiting.cancelled()
    monkeypatch.undo()
    await handle.abort()


@quiet
async def test_P4_foreground_runs_count_against_the_limit(pool: Pool, workers: Workers, probe: ProbeLog) -> None:
    await workers.start(slots=20)
    await pool.set_max_concurrent(2)
    await asyncio.gather(*(pool.run("nap", {"seconds": 0.05}) for _ in range(12)))
    assert probe.peak() == 2


@quiet
async def test_P4_bypass_runs_have_a_small_bound_of_their_own(pool: Pool, workers: Workers, probe: ProbeLog) -> None:
    await workers.start()
    await pool.set_max_concurrent(1)
    with pytest.raises(BypassRefused, match="max_bypass is 0"):
        await pool.spawn("nap", bypass_queue=True)
    await set_directly(pool, max_bypass=2)
    ordinary = await pool.spawn("nap", {"seconds": 60})
    await lives(pool, ordinary.id)
    queued = await pool.spawn("nap", {"seconds": 0})
    passing = [await pool.spawn("nap", {"seconds": 60}, bypass_queue=True) for _ in range(2)]
    await eventually(lambda: len(probe.started()) == 3, "both run beside the one that holds the only permit")
    with pytest.raises(BypassRefused, match="max_bypass is 2"):
        await pool.spawn("nap", bypass_queue=True)
    stats = await pool.stats()
    assert (stats.active, stats.bypass, stats.queued) == (1, 2, 1)
    assert (await queued.get()).status is Status.QUEUED
    assert await passing[0].abort() is AbortAnswer.STOPPING
    assert (await passing[0].wait(10)).status is Status.STOPPED
    assert (await queued.get()).status is Status.QUEUED, "a bypass run that ends gives no permit to the queue"
    assert (await pool.run("echo", {"value": 1}, bypass_queue=True)).result == 1
    await pool.interrupt()


@quiet
async def test_P4_bypass_runs_wait_for_limit_0_and_pause(pool: Pool, workers: Workers) -> None:
    await workers.start()
    await set_directly(pool, max_bypass=2)
    await pool.set_max_concurrent(0)
    held = await pool.spawn("echo", {"value": 1}, bypass_queue=True)
    record = await held.wait(0.3)
    assert (record.status, record.waiting_reason) == (Status.QUEUED, "held")
    assert (await pool.stats()).bypass == 0
    await pool.set_max_concurrent(1)
    assert await held.result(10) == 1
    await pool.pause()
    held = await pool.spawn("echo", {"value": 2}, bypass_queue=True)
    assert (await held.wait(0.3)).status is Status.QUEUED
    await pool.unpause()
    assert await held.result(10) == 2


# P5 and P6 ---------------------------------------------------------------------------------------------------------


@quiet
async def test_P5_an_aborted_queued_agent_is_stopped_at_once_and_never_called(pool: Pool, workers: Workers, probe: ProbeLog) -> None:
    await workers.start()
    await pool.set_max_concurrent(1)
    holder = await pool.spawn("nap", {"seconds": 60})
    await lives(pool, holder.id)
    aborted, later = await pool.spawn("echo"), await pool.spawn("echo")
    waiting = asyncio.create_task(aborted.wait())
    assert await aborted.abort("no need") is AbortAnswer.STOPPED
    record = await asyncio.wait_for(waiting, 5)
    assert (record.status, record.stop_reason, record.started_at) == (Status.STOPPED, "no need", None)
    await pool.set_max_concurrent(4)
    await holder.abort()
    assert await settled([holder, later]) == [Status.STOPPED, Status.COMPLETED]
    assert await settled([await pool.spawn("echo") for _ in range(8)]) == [Status.COMPLETED] * 8
    assert await kinds_of(pool, aborted.id) == ["created", "stopped"]
    assert probe.starts_of(aborted.id) == 0
    assert_settled_once(await history(pool))


@quiet
async def test_P5_an_agent_that_is_admitted_but_not_started_is_stopped_at_once(
    pool: Pool, redis_url: str, workers: Workers, probe: ProbeLog
) -> None:
    await pretend_worker(pool, "echo")
    admitted = await pool.spawn("echo")
    assert (await admitted.get()).admitted_at is not None
    assert any(key.startswith(b"arq:job:") for key in await everything(redis_url, pool))
    assert await admitted.abort() is AbortAnswer.STOPPED
    assert not [key for key in await everything(redis_url, pool) if key.startswith(b"arq:")]
    assert (await pool.stats()).active == 0
    await workers.start()
    assert (await pool.run("echo")).status is Status.COMPLETED
    assert probe.starts_of(admitted.id) == 0
    assert await kinds_of(pool, admitted.id) == ["created", "admitted", "stopped"]


@quiet
async def test_P5_an_agent_that_nobody_serves_is_stopped_at_once(pool: Pool, workers: Workers, probe: ProbeLog) -> None:
    other = await workers.start(agents=OTHER)
    other.send(signal.SIGTERM)
    await other.gone()
    unserved = await pool.spawn("other")
    assert (await unserved.get()).waiting_reason == "no_worker"
    assert await unserved.abort() is AbortAnswer.STOPPED
    await workers.start(agents=OTHER)
    assert (await pool.run("other")).status is Status.COMPLETED
    assert probe.starts_of(unserved.id) == 0
    assert await kinds_of(pool, unserved.id) == ["created", "stopped"]


@quiet
async def test_P6_an_aborted_running_agent_holds_its_permit_until_it_is_out(pool: Pool, workers: Workers, probe: ProbeLog) -> None:
    await workers.start()
    await pool.set_max_concurrent(1)
    stubborn = await pool.spawn("stubborn", {"seconds": 1.0})
    await lives(pool, stubborn.id)
    queued = await pool.spawn("echo")
    assert await stubborn.abort("enough") is AbortAnswer.STOPPING
    record = await stubborn.get()
    assert (record.status, record.stop_reason) == (Status.STOPPING, "enough")
    assert record.stop_requested_at is not None
    stats = await pool.stats()
    assert (stats.active, stats.stopping, stats.queued) == (1, 1, 1)
    assert await stubborn.abort("again") is AbortAnswer.STOPPING
    ended = await stubborn.wait(10)
    assert (ended.status, ended.result, ended.stop_reason) == (Status.STOPPED, "out at last", "enough")
    assert (await queued.wait(10)).status is Status.COMPLETED
    assert probe.peak() == 1
    assert await kinds_of(pool, stubborn.id) == ["created", "admitted", "started", "stopping", "stopped"]
    with pytest.raises(AgentStopped, match="by test: enough"):
        await stubborn.result()


@quiet
async def test_P6_an_abort_of_a_terminal_or_unknown_agent_writes_nothing(pool: Pool, redis_url: str, workers: Workers) -> None:
    worker = await workers.start()
    done, expired = await pool.spawn("echo"), await pool.spawn("echo", scopes=["old"])
    assert await settled([done, expired]) == [Status.COMPLETED] * 2
    assert await pool.purge(0, "old") == 1
    never, odd = pool.handle("0" * 20), pool.handle("an id: {never}\n*")
    worker.send(signal.SIGTERM)  # a living worker writes its heartbeats
    await worker.gone()
    before = await everything(redis_url, pool)
    assert await done.abort() is AbortAnswer.ALREADY_TERMINAL
    assert await expired.abort() is AbortAnswer.ALREADY_TERMINAL
    assert await never.abort() is AbortAnswer.UNKNOWN
    assert await odd.abort() is AbortAnswer.UNKNOWN
    assert await everything(redis_url, pool) == before


@quiet
async def test_P6_an_abort_never_poisons_a_later_agent_with_that_id(pool: Pool, workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    await workers.start()
    future = "f" * 20
    assert await pool.abort(future) is AbortAnswer.UNKNOWN
    monkeypatch.setattr("subagents.keys.new_id", lambda: future)
    handle = await pool.spawn("echo", {"value": 1})
    monkeypatch.undo()
    assert handle.id == future
    assert await handle.result(10) == 1


# P7 and P8 ---------------------------------------------------------------------------------------------------------


@quiet
async def test_P7_wait_idle_waits_also_for_those_spawned_meanwhile(pool: Pool, workers: Workers) -> None:
    await workers.start()
    assert await pool.wait_idle(timeout=5)
    handles = [await pool.spawn("nap", {"seconds": 60}, scopes=["mine"])]
    bystander = await pool.spawn("nap", {"seconds": 60}, scopes=["other"])
    idle = asyncio.create_task(pool.wait_idle("mine"))
    for _ in range(4):
        handles.append(await pool.spawn("nap", {"seconds": 60}, scopes=["mine"]))
        await handles[-2].abort()
        await handles[-2].wait(20)
        assert not idle.done(), "one that was spawned meanwhile is unsettled"
    await handles[-1].abort()
    assert await asyncio.wait_for(idle, 20)
    assert {(await handle.get()).status for handle in handles} == {Status.STOPPED}
    assert await pool.wait_idle(timeout=0.1) is False, "the bystander runs"
    await bystander.abort()
    assert await pool.wait_idle(timeout=10)


@quiet
async def test_P7_wait_idle_returns_also_when_agents_fail_or_are_stopped(pool: Pool, workers: Workers) -> None:
    await workers.start()
    for _ in range(10):
        await pool.spawn("fail")
    endless = [await pool.spawn("nap", {"seconds": 60}) for _ in range(10)]
    idle = asyncio.create_task(pool.wait_idle())
    await lives(pool, endless[0].id)
    await pool.interrupt()
    assert await asyncio.wait_for(idle, 10)


@quiet
async def test_P7_wait_idle_does_not_spin(pool: Pool, second: Pool, workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    await workers.start()
    handle = await pool.spawn("nap", {"seconds": 60})
    await lives(pool, handle.id)
    sent = counted(second, monkeypatch)
    assert await second.wait_idle(timeout=1.0) is False
    assert len(sent) <= 3
    idle = asyncio.create_task(second.wait_idle())
    await eventually(lambda: len(sent) > 2, "it waits")
    began = time.monotonic()
    await handle.abort()
    assert await asyncio.wait_for(idle, 10)
    assert time.monotonic() - began < 1.5, "it is told, and does not look only now and then"


@quiet
async def test_P8_a_timed_out_wait_returns_the_live_record(pool: Pool, workers: Workers) -> None:
    await workers.start()
    await pool.set_max_concurrent(1)
    running = await pool.spawn("talk", {"lines": 2, "seconds": 60})
    queued = [await pool.spawn("echo") for _ in range(3)]
    await eventually(lambda: _has_progress(running), "it has said something")
    record = await running.wait(0.1)
    assert (record.status, record.progress) == (Status.RUNNING, {"done": 2, "total": 2})
    record = await queued[2].wait(0)
    assert (record.status, record.queue_position, record.waiting_reason) == (Status.QUEUED, 3, "permit")
    with pytest.raises(WaitTimeout, match=r"still running after 0\.1 s") as late:
        await running.result(0.1)
    assert late.value.record.status is Status.RUNNING
    assert isinstance(late.value, TimeoutError)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(queued[0].wait(), 0.1)
    assert (await running.get()).status is Status.RUNNING
    await running.abort()
    assert await settled(queued) == [Status.COMPLETED] * 3


async def _has_progress(handle: AgentHandle) -> bool:
    return bool((await handle.get()).progress == {"done": 2, "total": 2})


# P9 ----------------------------------------------------------------------------------------------------------------


async def test_P9_lists_are_pages_newest_first_under_every_filter(pool: Pool) -> None:
    await pool.set_max_concurrent(0)
    await pretend_worker(pool, "echo", "nap")
    requests = [
        SpawnRequest(type=("echo", "nap")[number % 2], scopes=("all", f"third-{number % 3}"), description=str(number))
        for number in range(250)
    ]
    handles = await pool.spawn_many(requests)
    aborted = {handle.id for handle in handles[::5]}
    for handle in handles[::5]:
        await handle.abort()

    async def pages(limit: int = 30, **filters: Any) -> list[str]:
        found: list[str] = []
        cursor: str | None = None
        while True:
            page = await pool.list(limit=limit, cursor=cursor, **filters)
            assert len(page) == limit or page.cursor is None
            found += [record.id for record in page]
            cursor = page.cursor
            if cursor is None:
                return found

    newest_first = [handle.id for handle in reversed(handles)]
    numbered = list(reversed(list(enumerate(handle.id for handle in handles))))
    assert await pages() == newest_first
    assert await pages(limit=1000) == newest_first
    assert await pages(limit=125) == newest_first
    assert await pages(type="nap") == [id for number, id in numbered if number % 2 == 1]
    assert await pages(scope="third-1") == [id for number, id in numbered if number % 3 == 1]
    assert await pages(scope="*") == newest_first
    assert await pages(status="stopped") == [id for _, id in numbered if id in aborted]
    assert await pages(status=Status.QUEUED) == [id for _, id in numbered if id not in aborted]
    assert await pages(status="queued", type="echo", scope="third-2", limit=7) == [
        id for number, id in numbered if id not in aborted and number % 2 == 0 and number % 3 == 2
    ]
    assert await pages(type="echo", scope="nobody") == await pages(scope="nobody") == await pages(status="running") == []
    await pool.interrupt()


async def test_P9_a_cursor_stands_while_new_ones_come_and_old_ones_go(pool: Pool) -> None:
    await pool.set_max_concurrent(0)
    await pretend_worker(pool, "echo", "nap")
    old = [(await pool.spawn("echo")).id for _ in range(10)]
    page = await pool.list(limit=4)
    for _ in range(5):
        await pool.spawn("echo")
    await pool.abort(old[6])
    await pool.abort(old[3])
    await pool.purge(0)
    rest = await pool.list(limit=100, cursor=page.cursor)
    assert [record.id for record in page] == old[:5:-1]
    assert [record.id for record in rest] == [id for id in old[5::-1] if id != old[3]]
    assert rest.cursor is None
    await pool.interrupt()


async def test_P9_bad_filters_are_refused(pool: Pool) -> None:
    bad: list[dict[str, Any]] = [{"limit": 0}, {"limit": 1001}, {"limit": True}, {"status": "asleep"}, {"cursor": "-1"}, {"scope": "@x"}]
    for filters in bad:
        with pytest.raises(InvalidArgument):
            await pool.list(**filters)


async def test_P9_get_is_a_snapshot_by_value(pool: Pool) -> None:
    await pool.set_max_concurrent(0)
    await pretend_worker(pool, "echo", "nap")
    handle = await pool.spawn("echo", {"value": 1}, scopes=["a"])
    before = await pool.get(handle.id)
    with pytest.raises(ValueError, match="frozen"):
        before.status = Status.COMPLETED  # pyright: ignore[reportAttributeAccessIssue]
    await handle.abort()
    assert before.status is Status.QUEUED
    assert (await pool.get(handle.id)).status is Status.STOPPED
    with pytest.raises(UnknownAgent):
        await pool.get("0" * 20)


# P10 ---------------------------------------------------------------------------------------------------------------


@quiet
async def test_P10_purge_removes_settled_agents_and_never_unsettled_ones(pool: Pool, redis_url: str, workers: Workers) -> None:
    await workers.start()
    await pool.set_max_concurrent(2)
    old = [await pool.spawn("echo", {"value": number}, scopes=["old"]) for number in range(5)]
    kept = await pool.spawn("echo", {"value": "kept"}, scopes=["kept"])
    talked = await pool.spawn("talk", scopes=["old"])
    await settled([*old, kept, talked])
    running = await pool.spawn("nap", {"seconds": 60}, scopes=["old"])
    waiting = [await pool.spawn("nap", {"seconds": 60}, scopes=["old"]) for _ in range(3)]
    await lives(pool, running.id)
    assert await pool.purge(3600) == 0
    assert await pool.purge(0, "old") == 6
    for handle in (*old, talked):
        with pytest.raises(AgentExpired):
            await handle.wait(1)
        with pytest.raises(AgentExpired):
            await handle.get()
        assert not any(handle.id.encode() in key for key in await everything(redis_url, pool) if b":gone:" not in key)
    assert [record.id for record in await pool.list(scope="old")] == [handle.id for handle in reversed([running, *waiting])]
    assert await kept.result() == "kept"
    assert await pool.purge(0) == 1
    assert (await running.get()).status is Status.RUNNING
    await pool.interrupt()
    assert await pool.purge(0) == 4
    assert len(await pool.list()) == 0


async def test_P10_purge_takes_only_a_span_of_time(pool: Pool) -> None:
    for bad in (-1, True, "1", float("nan"), float("inf")):
        with pytest.raises(InvalidArgument):
            await pool.purge(bad)  # type: ignore[arg-type]


@quiet
async def test_P10_what_someone_consumed_lives_ten_minutes_and_the_rest_twelve_hours(pool: Pool, workers: Workers) -> None:
    await workers.start()
    consumed, seen, failed = await pool.spawn("talk"), await pool.spawn("talk"), await pool.spawn("fail")
    await settled([consumed, seen, failed])
    await seen.get()
    assert await consumed.result() == 3
    with pytest.raises(AgentFailed):
        await failed.result()

    async def lifetimes(handle: AgentHandle) -> list[float]:
        names = ("agent", "input", "result", "events")
        left = [await pool.gateway.redis.pttl(f"{pool.prefix}{name}:{handle.id}") / 1000 for name in names]
        return [seconds for seconds in left if seconds != -0.002]

    for handle in (consumed, failed):
        assert all(590 < seconds <= 600 for seconds in await lifetimes(handle)), await lifetimes(handle)
    assert all(12 * 3600 - 10 < seconds <= 12 * 3600 for seconds in await lifetimes(seen))
    assert await pool.gateway.redis.ttl(f"{pool.prefix}gone:{consumed.id}") > 6 * 86400


@quiet
async def test_P10_after_its_time_a_tombstone_answers_expired_and_then_nobody_knows(pool: Pool, workers: Workers) -> None:
    await workers.start()
    await set_directly(pool, keep_settled=300, keep_tombstone=1200)
    handle = await pool.spawn("echo")
    await handle.wait(10)

    async def answer() -> type[Exception] | None:
        try:
            await handle.get()
        except (AgentExpired, UnknownAgent) as gone:
            return type(gone)
        return None

    seen: list[type[Exception] | None] = []

    async def unknown() -> bool:
        seen.append(await answer())
        return seen[-1] is UnknownAgent

    await eventually(unknown, "its tombstone is gone")
    assert list(dict.fromkeys(seen)) in ([None, AgentExpired, UnknownAgent], [AgentExpired, UnknownAgent])


# P11 ---------------------------------------------------------------------------------------------------------------


@quiet
async def test_P11_bad_spawns_are_refused_with_typed_errors_and_leave_nothing(pool: Pool, redis_url: str, workers: Workers) -> None:
    await workers.start()
    assert (await pool.run("echo")).status is Status.COMPLETED
    with pytest.raises(UnknownType, match=r"unknown agent type 'ech'; known types: .*echo") as unknown:
        await pool.spawn("ech")
    assert "nap" in unknown.value.known
    with pytest.raises(InvalidInput, match="no JSON"):
        await pool.spawn("echo", {"value": lambda: None})
    with pytest.raises(InvalidInput, match="no JSON"):
        await pool.spawn("echo", {"value": "\ud800"})
    with pytest.raises(InputTooLarge, match="the bound is 262,144"):
        await pool.spawn("echo", {"value": "x" * 262_144})
    with pytest.raises(InvalidArgument):
        await pool.spawn("an echo")
    bad: list[dict[str, Any]] = [
        {"scopes": "text"},
        {"scopes": ["*"]},
        {"scopes": ["a,b"]},
        {"scopes": ["a"] * 17},
        {"key": "a key"},
        {"timeout": 0},
        {"timeout": float("nan")},
        {"stall_timeout": -1},
        {"retries": -1},
        {"retries": 101},
        {"on_interrupt": "hide"},
        {"description": "x" * 501},
    ]
    for options in bad:
        with pytest.raises(InvalidArgument):
            await pool.spawn("echo", **options)
    await pool.halt()
    with pytest.raises(PoolHalted, match="unhalt"):
        await pool.spawn("echo")
    await pool.unhalt()
    assert len(await history(pool, "created")) == 1
    assert len(await pool.list()) == 1


async def test_P11_every_type_is_accepted_while_no_worker_has_ever_joined(pool: Pool, workers: Workers) -> None:
    early = await pool.spawn("echo", {"value": 1})
    never = await pool.spawn("never")
    await workers.start()
    assert await early.result(10) == 1
    with pytest.raises(UnknownType):
        await pool.spawn("never")

    async def set_aside() -> bool:
        return (await never.get()).waiting_reason == "no_worker"

    await eventually(set_aside, "the agent of a type that nobody serves is set aside, without a permit")
    assert (await pool.stats()).active == 0
    await never.abort()


@quiet
async def test_P11_a_type_that_nobody_serves_blocks_nobody_and_re_enters_at_its_own_place(
    pool: Pool, workers: Workers, probe: ProbeLog
) -> None:
    """At limit 1, with two workers of different types, one of which leaves and comes back."""
    await workers.start()
    other = await workers.start(agents=OTHER)
    await pool.set_max_concurrent(1)
    assert (await pool.run("other")).result == "other"
    other.send(signal.SIGTERM)
    await other.gone()
    assert "other" in (await pool.gateway.redis.hkeys(f"{pool.prefix}types"))  # type: ignore[misc]  # pyright: ignore[reportGeneralTypeIssues]

    first = await pool.spawn("other")
    record = await first.get()
    assert (record.status, record.waiting_reason, record.queue_position) == (Status.QUEUED, "no_worker", None)
    stats = await pool.stats()
    assert (stats.active, stats.queued, stats.unserved) == (0, 0, 1)
    assert (await pool.run("echo")).status is Status.COMPLETED

    holder = await pool.spawn("nap", {"seconds": 60})
    await lives(pool, holder.id)
    ahead, behind = await pool.spawn("echo"), await pool.spawn("echo")
    second_other = await pool.spawn("other")
    await workers.start(agents=OTHER)
    assert (await pool.stats()).unserved == 0
    assert [(await handle.get()).queue_position for handle in (first, ahead, behind, second_other)] == [1, 2, 3, 4]
    await holder.abort()
    assert await settled([first, ahead, behind, second_other]) == [Status.COMPLETED] * 4
    assert probe.started()[-4:] == [first.id, ahead.id, behind.id, second_other.id]
    assert probe.peak() == 1


@quiet
async def test_P11_an_admitted_agent_steps_aside_when_the_last_worker_of_its_type_dies(pool: Pool, workers: Workers) -> None:
    await workers.start()
    other = await workers.start(agents=OTHER, slots=1)
    await pool.set_max_concurrent(2)
    busy = await pool.spawn("other", {"seconds": 60})
    await lives(pool, busy.id)
    admitted = await pool.spawn("other")
    assert (await admitted.get()).waiting_reason == "worker", "its worker has no slot free"
    queued = await pool.spawn("echo")
    assert (await queued.get()).status is Status.QUEUED
    other.kill_everything()
    assert (await queued.wait(15)).status is Status.COMPLETED
    assert (await busy.wait(15)).error_kind is ErrorKind.WORKER_LOST
    record = await admitted.get()
    assert (record.status, record.waiting_reason) == (Status.QUEUED, "no_worker")
    await workers.start(agents=OTHER)
    assert (await admitted.wait(15)).status is Status.COMPLETED


# P12 ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
async def odd(pool: Pool, workers: Workers) -> Pool:
    """One permit, one worker of odd agents: what is not given back is missed."""
    await pool.set_max_concurrent(1)
    await workers.start(agents=ODD, slots=1)
    return pool


NO_JSON = ("lambda", "object", "sneaky", "generator", "broken generator", "socket", "circle", "deep", "surrogate", "surrogate key", "bytes")
TOLD = {
    "socket": "HoldsSocket: it holds a socket",
    "unspeakable": "Unspeakable",
    "surrogate": "a file called",
    "base": "NotEvenAnException: out of the way",
    "group": "several",
    "long": "xxx",
    "generator exit": "GeneratorExit",
}


@quiet
async def test_P12_a_result_that_cannot_be_serialised_is_an_error_of_its_kind(odd: Pool) -> None:
    handles = {what: await odd.spawn("give", {"what": what}) for what in NO_JSON}
    last = await odd.spawn("echo", {"value": "the permit is back"})
    for what, handle in handles.items():
        record = await handle.wait(20)
        assert (record.status, record.error_kind, record.result) == (Status.ERROR, ErrorKind.UNSERIALISABLE_RESULT, None), what
        assert "is no JSON" in str(record.error), what
    assert await last.result(10) == "the permit is back"


@quiet
async def test_P12_an_exception_is_told_as_text_whatever_it_holds(odd: Pool) -> None:
    handles = {what: await odd.spawn("throw", {"what": what}) for what in TOLD}
    last = await odd.spawn("echo", {"value": "the permit is back"})
    for what, handle in handles.items():
        record = await handle.wait(20)
        assert (record.status, record.error_kind) == (Status.ERROR, ErrorKind.AGENT_ERROR), what
        assert TOLD[what] in str(record.error), what
        assert len(str(record.error)) <= 8_000, what
    assert await last.result(10) == "the permit is back"


@quiet
async def test_P12_sizes_inputs_and_promises(odd: Pool, probe: ProbeLog) -> None:
    assert len((await odd.run("huge", {"size": 1_048_574})).result) == 1_048_574
    huge = await odd.run("huge", {"size": 1_048_575})
    assert (huge.error_kind, huge.error) == (ErrorKind.RESULT_TOO_LARGE, "its result is 1,048,577 bytes of JSON, the bound is 1,048,576")
    begun = len(probe.started())
    for bad, said in (({"count": "many"}, "count: "), ({}, "count: "), ({"count": 1, "age": 3}, "age: "), (17, "not int")):
        refused = await odd.run("picky", bad)
        assert (refused.status, refused.error_kind) == (Status.ERROR, ErrorKind.INVALID_INPUT)
        assert refused.error
        assert said in refused.error
    assert len(probe.started()) == begun, "no line of their code ran"
    broken = await odd.run("typed", {"value": "no number"})
    assert broken.error_kind is ErrorKind.AGENT_ERROR
    assert (await odd.run("cancel_itself")).error == "its code cancelled itself"
    assert "SystemExit(3)" in str((await odd.run("exit")).error)
    nothing = await odd.run("echo")
    assert (nothing.status, nothing.result) == (Status.COMPLETED, None)


@quiet
async def test_P12_a_worker_process_that_dies_with_its_agent(odd: Pool) -> None:
    died = await odd.run("die")
    assert (died.status, died.error_kind) == (Status.ERROR, ErrorKind.WORKER_LOST)
    assert (await odd.run("echo", {"value": 1})).result == 1


# P14 ---------------------------------------------------------------------------------------------------------------


@quiet
async def test_P14_a_timeout_counts_from_the_start_not_from_the_spawn(pool: Pool, workers: Workers) -> None:
    await workers.start()
    await pool.set_max_concurrent(1)
    first = await pool.spawn("nap", {"seconds": 1.0})
    patient = await pool.spawn("nap", {"seconds": 0.2}, timeout=0.8, stall_timeout=0.8)
    late = await pool.spawn("nap", {"seconds": 60}, timeout=0.5)
    assert await settled([first, patient]) == [Status.COMPLETED] * 2
    record = await late.wait(10)
    assert (record.status, record.error_kind) == (Status.ERROR, ErrorKind.TIMEOUT)
    assert record.started_at
    assert record.ended_at
    assert 0.45 < (record.ended_at - record.started_at).total_seconds() < 2
    assert (record.started_at - record.enqueued_at).total_seconds() > 1
    assert "stopping" not in await kinds_of(pool, late.id), "a time-out is no stop request"


@quiet
async def test_P14_a_timed_out_agent_keeps_its_permit_until_it_is_out(pool: Pool, workers: Workers, probe: ProbeLog) -> None:
    await workers.start()
    await pool.set_max_concurrent(1)
    stubborn = await pool.spawn("stubborn", {"seconds": 1.2}, timeout=0.2)
    queued = await pool.spawn("echo")
    assert (await stubborn.wait(10)).error_kind is ErrorKind.TIMEOUT
    assert (await queued.wait(10)).status is Status.COMPLETED
    assert probe.peak() == 1
    assert probe.marks("swallowed")


@quiet
async def test_P14_a_stall_timeout_counts_from_the_last_sign_of_life(odd: Pool) -> None:
    talking = await odd.run("chatter", {"seconds": 1.5}, stall_timeout=0.6)
    assert talking.status is Status.COMPLETED
    silent = await odd.run("nap", {"seconds": 60}, stall_timeout=0.6)
    assert (silent.status, silent.error_kind) == (Status.ERROR, ErrorKind.STALLED)
    assert silent.started_at
    assert silent.ended_at
    assert 0.55 < (silent.ended_at - silent.started_at).total_seconds() < 2.5


# P15 ---------------------------------------------------------------------------------------------------------------


@quiet
async def test_P15_a_drained_worker_takes_nothing_new_and_keeps_its_leases_until_its_agents_end(
    pool: Pool, workers: Workers, probe: ProbeLog
) -> None:
    draining = await workers.start(slots=1, drain_timeout=20)
    await pool.set_max_concurrent(2)
    running = await pool.spawn("nap", {"seconds": 4.5})  # longer than the lease of 3 s
    await lives(pool, running.id)
    draining.send(signal.SIGTERM)
    await eventually(lambda: _serves_nothing(pool), "the worker has taken its leave")
    queued = [await pool.spawn("echo") for _ in range(3)]
    assert {(await handle.get()).waiting_reason for handle in queued} == {"no_worker"}
    assert (await running.wait(20)).status is Status.COMPLETED
    assert await draining.gone(10) == 0
    assert probe.started() == [running.id]
    await workers.start()
    assert await settled(queued) == [Status.COMPLETED] * 3
    assert not await history(pool, "lost", "redispatched")


async def _serves_nothing(pool: Pool) -> bool:
    return bool(await pool.gateway.redis.exists(f"{pool.prefix}serving:nap") == 0)


@quiet
async def test_P15_what_is_left_is_handed_back_to_the_front_in_order_or_settled_as_shutdown(
    pool: Pool, workers: Workers, probe: ProbeLog
) -> None:
    draining = await workers.start(processes=2, slots=2, drain_timeout=0.5)
    again = [await pool.spawn("nap", {"seconds": 2}, retries=1) for _ in range(3)]
    once = await pool.spawn("nap", {"seconds": 2})
    await eventually(lambda: len(probe.started()) == 4, "all four run")
    behind = [await pool.spawn("echo") for _ in range(3)]
    began = time.monotonic()
    draining.send(signal.SIGTERM)
    assert await draining.gone(15) == 0
    assert time.monotonic() - began < 5
    ended = await once.wait(5)
    assert (ended.status, ended.error_kind) == (Status.ERROR, ErrorKind.SHUTDOWN)
    assert {(await handle.get()).status for handle in (*again, *behind)} == {Status.QUEUED}
    await pool.set_max_concurrent(1)
    await workers.start(slots=1)
    await pool.set_max_concurrent(2)
    records = [await handle.wait(30) for handle in (*again, *behind)]
    assert {record.status for record in records} == {Status.COMPLETED}
    assert [record.attempt for record in records] == [2, 2, 2, 1, 1, 1]
    assert probe.started()[4:] == [handle.id for handle in (*again, *behind)]
    assert_settled_once(await history(pool))


@quiet
async def test_P15_a_second_signal_ends_it_now(pool: Pool, workers: Workers) -> None:
    worker = await workers.start(drain_timeout=60)
    handle = await pool.spawn("nap", {"seconds": 60})
    await lives(pool, handle.id)
    worker.send(signal.SIGTERM)
    await eventually(lambda: _serves_nothing(pool), "it drains")
    assert worker.process.returncode is None
    began = time.monotonic()
    worker.send(signal.SIGTERM)
    await worker.gone(10)
    assert time.monotonic() - began < 3
    assert (await handle.wait(5)).error_kind is ErrorKind.SHUTDOWN


@quiet
async def test_P15_the_exit_is_bounded_even_if_an_agent_ignores_every_word(pool: Pool, workers: Workers) -> None:
    worker = await workers.start(drain_timeout=0.3, grace=0.7)
    stubborn = await pool.spawn("stubborn", {"seconds": 60})
    polite = await pool.spawn("nap", {"seconds": 60})
    await lives(pool, stubborn.id)
    await lives(pool, polite.id)
    began = time.monotonic()
    worker.send(signal.SIGTERM)
    assert await worker.gone(20) != 0
    assert time.monotonic() - began < 6
    assert (await polite.wait(5)).error_kind is ErrorKind.SHUTDOWN
    assert (await stubborn.wait(10)).error_kind is ErrorKind.WORKER_LOST


@quiet
async def test_P15_an_agent_whose_claim_is_under_way_when_the_signal_comes_is_handed_back(pool: Pool, workers: Workers) -> None:
    """The server holds all writes for longer than the worker waits to take its leave."""
    await pool.pause()
    handle = await pool.spawn("nap", {"seconds": 60}, retries=1)
    worker = await workers.start(drain_timeout=0.3)
    unpause, script = calls.pause(pool.prefix, False, "", "test"), loader.load("pause").source
    async with pool.gateway.redis.pipeline(transaction=False) as together:
        together.eval(script, 1, unpause.prefix, *unpause.args)
        together.execute_command("CLIENT", "PAUSE", "2600", "WRITE")
        await together.execute()
    await asyncio.sleep(0.3)  # the wake-up arrives and the claim goes out
    worker.send(signal.SIGTERM)
    assert await worker.gone(20) == 0
    record = await handle.get()
    assert (record.status, record.attempt) == (Status.QUEUED, 1), workers.logs()
    assert [event.kind for event in await history(pool) if event.agent_id == handle.id][-2:] == ["started", "redispatched"]
    await handle.abort()


@quiet
async def test_P15_a_stopped_agent_is_not_handed_back(pool: Pool, workers: Workers) -> None:
    worker = await workers.start(drain_timeout=0.2, grace=5)
    stubborn = await pool.spawn("stubborn", {"seconds": 1.5}, retries=3)
    await lives(pool, stubborn.id)
    await stubborn.abort()
    worker.send(signal.SIGTERM)
    assert await worker.gone(20) == 0
    record = await stubborn.wait(5)
    assert (record.status, record.attempt) == (Status.STOPPED, 1)


# P16 ---------------------------------------------------------------------------------------------------------------


@quiet
async def test_P16_consumers_that_fail_change_no_outcome(pool: Pool, second: Pool, workers: Workers) -> None:
    await workers.start()
    handles = [await pool.spawn("talk", {"lines": 5, "seconds": 0.3}, scopes=["x"]) for _ in range(4)]

    async def follow_agent(handle: AgentHandle) -> None:
        async for event in handle.events():
            raise ValueError(event.kind)

    async def follow_pool() -> None:
        async for event in second.events("0"):
            raise ValueError(event.kind)

    consumers = [asyncio.create_task(follow_agent(handle)) for handle in handles] + [asyncio.create_task(follow_pool())]
    waiting = [asyncio.create_task(handle.wait()) for handle in handles]
    waiting[0].cancel()
    outcomes = await asyncio.gather(*consumers, return_exceptions=True)
    assert all(isinstance(outcome, ValueError) for outcome in outcomes), outcomes
    assert await settled(handles) == [Status.COMPLETED] * 4
    for task in waiting[1:]:
        assert (await task).status is Status.COMPLETED
    with suppress(asyncio.CancelledError):
        await waiting[0]


@quiet
async def test_P16_a_scope_left_by_a_consumers_error_stops_the_scope_and_nobody_else(pool: Pool, workers: Workers) -> None:
    await workers.start()
    outside = await pool.spawn("nap", {"seconds": 0.5})
    inside: AgentHandle | None = None
    with pytest.raises(ValueError, match="of its own"):  # noqa: PT012 the block is what is tested
        async with pool.scope("run-42") as scope:
            inside = await scope.spawn("nap", {"seconds": 60})
            raise ValueError("of its own")
    assert inside is not None
    assert await settled([inside, outside]) == [Status.STOPPED, Status.COMPLETED]


# P19 ---------------------------------------------------------------------------------------------------------------


@quiet
async def test_P19_closing_a_pool_ends_its_waits_and_touches_no_agent(pool: Pool, redis_url: str, workers: Workers) -> None:
    await workers.start()
    handle = await pool.spawn("nap", {"seconds": 1.5}, scopes=["x"])
    await lives(pool, handle.id)
    closing = Pool(redis_url, name=pool.name)
    await closing.open()
    theirs = closing.handle(handle.id)

    async def follow() -> None:
        async for _ in theirs.events():
            pass

    async def follow_all() -> None:
        async for _ in closing.events():
            pass

    waits = [
        theirs.wait(),
        theirs.result(),
        theirs.wait(50),
        closing.wait_idle(),
        closing.wait_idle("x"),
        closing.run("nap", {"seconds": 1}),
    ]
    tasks = [asyncio.ensure_future(wait) for wait in (*waits, follow(), follow_all())]
    await eventually(lambda: _count(pool, 2), "the run has spawned its agent")
    began = time.monotonic()
    await closing.close()
    outcomes = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 5)
    assert time.monotonic() - began < 1.5
    assert [type(outcome) for outcome in outcomes] == [PoolClosed] * len(tasks)
    with pytest.raises(PoolClosed):
        await theirs.wait()
    assert (await handle.get()).status is Status.RUNNING
    assert {record.status for record in [await pool.get(record.id) for record in await pool.list()]} == {Status.RUNNING}
    assert await pool.wait_idle(timeout=10)
    assert {record.status for record in await pool.list()} == {Status.COMPLETED}


async def _count(pool: Pool, count: int) -> bool:
    return len(await pool.list(status="running")) == count


async def test_P19_a_wait_ends_at_whatever_point_the_pool_is_closed(pool: Pool, redis_url: str) -> None:
    await pool.set_max_concurrent(0)
    handle = await pool.spawn("echo")
    for turns in range(24):
        closing = Pool(redis_url, name=pool.name)
        await closing.open()
        if turns % 2:
            await closing.handle(handle.id).wait(0)  # the subscription stands already
        task = asyncio.create_task(closing.handle(handle.id).wait())
        for _ in range(turns // 2):
            await asyncio.sleep(0)
        await asyncio.wait_for(closing.close(), 5)
        with pytest.raises(PoolClosed):
            await asyncio.wait_for(task, 5)
    assert (await handle.get()).status is Status.QUEUED
    await pool.interrupt()


async def test_P19_a_closed_pool_can_be_closed_again(redis_url: str, pool: Pool) -> None:
    closing = Pool(redis_url, name=pool.name)
    await closing.open()
    await closing.close()
    await closing.close()
    with pytest.raises(PoolClosed):
        await closing.wait_idle()
