"""The scheduler: one leads, the lead moves on, and a pool heals; on a real server, with real processes that are killed and frozen."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from pathlib import Path
from typing import Any, cast

import pytest

from subagents import Pool, SpawnRequest, keys
from subagents.embedded import EmbeddedServer, server
from subagents.errors import AgentExpired, InvalidArgument, RedisUnreachable
from subagents.scheduler import Scheduler, UnfitServer, fitness, leader
from subagents.scheduler.housekeeping import Housekeeping
from subagents.scheduler.leader import LEASE, MARGIN, RENEW_EVERY, Leadership
from subagents.scheduler.process import RESIGN_WITHIN, STOP_WITHIN
from subagents.scheduler.retention import Retention
from subagents.scheduler.rounds import PACE, STAND_BY, Rounds
from subagents.scripts import calls, loader
from subagents.scripts.server import ServerFacts
from subagents.scripts.wakes import wait_for_wake
from support.history import history
from support.leaks import assert_quiet
from support.waiting import eventually

TYPE = "measurer"
NOISE = 1.0
"""What a busy machine may add to a time that is promised."""
PROGRAM = """
import asyncio, sys
from subagents.scheduler import Scheduler
asyncio.run(Scheduler(sys.argv[1], pool=sys.argv[2]).run())
"""


@pytest.fixture(scope="module")
def shared_server() -> Generator[EmbeddedServer]:
    with server() as running:
        yield running


@pytest.fixture
def own_server() -> Generator[EmbeddedServer]:
    """For tests that kill, freeze or misconfigure it; on TCP, so that its clients can be told apart."""
    with server(port=0, appendfsync="always", extra=["--key-load-delay", "300"]) as running:
        yield running


@contextlib.asynccontextmanager
async def opened(url: str, **settings: Any) -> AsyncGenerator[Pool]:
    async with Pool(url, name=f"test-{keys.new_id()[:8]}", by="test", **settings) as pool:
        yield pool


@pytest.fixture
async def pool(shared_server: EmbeddedServer) -> AsyncGenerator[Pool]:
    """A pool at limit 1 with the shortest lease."""
    async with opened(shared_server.url, max_concurrent=1, lease=1) as made:
        yield made


class FakeWorker:
    """A worker as far as the pool can see; it never does anybody's housekeeping."""

    def __init__(self, pool: Pool, name: str) -> None:
        self._pool, self.name = pool, name
        self._heart: asyncio.Task[None] | None = None
        self.held: dict[str, str] = {}

    async def join(self) -> None:
        await self._pool.gateway(calls.join(self._pool.prefix, self.name, "{}", {TYPE: "{}"}))
        self._heart = asyncio.create_task(self._beat())

    async def _beat(self) -> None:
        while True:
            await self._pool.gateway(calls.renew(self._pool.prefix, self.name, list(self.held.items()), 0))
            await asyncio.sleep(0.1)

    async def die(self) -> None:
        """From here on nobody renews what it holds."""
        if self._heart is not None:
            self._heart.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._heart

    async def claim(self, free: int = 1) -> list[str]:
        claimed = await self._pool.gateway(calls.claim(self._pool.prefix, self.name, free, [TYPE], keys.nonce()))
        self.held |= {spec.id: spec.token for spec in claimed.specs}
        return [spec.id for spec in claimed.specs]

    async def complete(self, agent_id: str) -> None:
        settlement = calls.Settlement(agent_id, self.held.pop(agent_id), "completed", result="42")
        await self._pool.gateway(calls.finish(self._pool.prefix, [settlement]))


@pytest.fixture
async def worker(pool: Pool) -> AsyncGenerator[FakeWorker]:
    joined = FakeWorker(pool, "steady")
    await joined.join()
    yield joined
    await joined.die()


@contextlib.asynccontextmanager
async def scheduling(url: str, pool: Pool) -> AsyncGenerator[Scheduler]:
    """A scheduler of the pool, leading."""
    async with Scheduler(url, pool=pool.name) as scheduler:
        await eventually(lambda: scheduler.state().last_tick_ago_s is not None, "the scheduler leads and did a round")
        yield scheduler


class Processes:
    """Schedulers, each in a process of its own."""

    def __init__(self, pool: Pool, url: str) -> None:
        self._pool, self._url = pool, url
        self._all: list[asyncio.subprocess.Process] = []

    async def start(self) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", PROGRAM, self._url, self._pool.name, start_new_session=True)
        self._all.append(process)
        return process

    async def leader(self) -> int | None:
        """The pid of the process that leads, as the server has it."""
        name = await cast("Awaitable[str | None]", self._pool.gateway.redis.get(f"{self._pool.prefix}leader"))
        return int(name.split("-")[-2]) if name else None

    async def one_leads(self, *, other_than: int | None = None, timeout: float = 20) -> int:
        async def leader() -> int | None:
            pid = await self.leader()
            return None if pid == other_than else pid

        return cast("int", await eventually(leader, f"a scheduler other than {other_than} leads", timeout))

    async def end(self) -> None:
        for process in self._all:
            if process.returncode is None:
                process.kill()  # a frozen process dies of it too
            await process.wait()


@contextlib.asynccontextmanager
async def processes(pool: Pool, url: str) -> AsyncGenerator[Processes]:
    started = Processes(pool, url)
    try:
        yield started
    finally:
        await started.end()


# Who leads ---------------------------------------------------------------------------------------------------------


async def test_exactly_one_of_three_leads_and_the_next_follows_when_it_stops(shared_server: EmbeddedServer, pool: Pool) -> None:
    schedulers = [Scheduler(shared_server.url, pool=pool.name) for _ in range(3)]
    seen: list[int] = []

    def leaders() -> list[Scheduler]:
        found = [scheduler for scheduler in schedulers if scheduler.state().leading]
        seen.append(len(found))
        return found

    await asyncio.gather(*(scheduler.start() for scheduler in schedulers))
    for left in (3, 2, 1):
        (leader,) = await eventually(leaders, f"one of {left} leads")
        assert await pool.gateway.redis.get(f"{pool.prefix}leader") == leader.name
        await leader.stop()
    assert set(seen) <= {0, 1}
    assert leaders() == []
    assert await pool.gateway.redis.get(f"{pool.prefix}leader") is None


async def test_a_killed_leader_is_replaced_within_its_lease_and_a_second(shared_server: EmbeddedServer, pool: Pool) -> None:
    async with processes(pool, shared_server.url) as started:
        first = await started.start()
        assert await started.one_leads() == first.pid
        standby = await started.start()
        first.kill()
        killed_at = time.monotonic()
        assert await started.one_leads(other_than=first.pid) == standby.pid
        took = time.monotonic() - killed_at
    print(f"a killed leader was replaced after {took:.2f} s")
    assert took < LEASE + STAND_BY + NOISE


async def test_a_leader_told_to_end_resigns_so_that_the_standby_leads_at_once(shared_server: EmbeddedServer, pool: Pool) -> None:
    standby = Scheduler(shared_server.url, pool=pool.name)
    async with processes(pool, shared_server.url) as started, monitored(pool) as lines:
        first = await started.start()
        await started.one_leads()
        await standby.start()
        await eventually(
            lambda: any(line.script == "lead" and standby.name in line.text for line in lines), "the standby has asked for the lead"
        )
        assert not standby.state().leading
        first.send_signal(signal.SIGTERM)
        told_at = time.monotonic()
        await eventually(lambda: standby.state().leading, "the standby leads")
        took = time.monotonic() - told_at
        assert await asyncio.wait_for(first.wait(), 10) == 0
        await standby.stop()
    print(f"a resigned lead was taken after {took:.2f} s")
    assert took < STAND_BY + NOISE


async def test_a_frozen_leader_asks_for_the_lead_before_it_acts_again(own_server: EmbeddedServer) -> None:
    async with opened(own_server.url) as pool, processes(pool, own_server.url) as started, monitored(pool) as lines:
        frozen = await started.start()
        await started.one_leads()
        await started.start()
        os.kill(frozen.pid, signal.SIGSTOP)
        other = await started.one_leads(other_than=frozen.pid)
        thawed_from = len(lines)
        os.kill(frozen.pid, signal.SIGCONT)

        def its_words() -> list[str]:
            """What it has said since, on any connection on which it ever asked for the lead."""
            connections = {line.client for line in lines if line.script == "lead" and f"-{frozen.pid}-" in line.text}
            return [line.script for line in lines[thawed_from:] if line.client in connections]

        await eventually(lambda: len(its_words()) >= 2, "the thawed scheduler has asked twice")
        assert set(its_words()) == {"lead"}
        assert await started.leader() == other


async def test_the_lead_is_trusted_for_less_than_its_lease_from_when_it_was_asked_for(pool: Pool, clock: Clock) -> None:
    leadership = Leadership(pool.gateway, pool.prefix, "a")
    assert await leadership.ask()
    clock.now += LEASE - MARGIN - 0.01
    assert leadership.leading
    assert leadership.since is not None
    clock.now += 0.01
    assert not leadership.leading
    assert leadership.since is None

    assert await leadership.ask(), "the lease in Redis is still its own"
    assert leadership.since == clock.now, "a lead that was in doubt begins anew"
    clock.now += RENEW_EVERY
    clock.freeze_for = LEASE
    assert not await leadership.ask(), "an answer that comes after the lease is worth nothing"


async def test_the_lead_is_renewed_when_that_is_due_and_a_follower_asks_each_time(pool: Pool, clock: Clock) -> None:
    first, second = (Leadership(pool.gateway, pool.prefix, name) for name in "ab")
    async with monitored(pool) as lines:
        for _ in range(10):
            assert await first.ask()
            assert not await second.ask()
            clock.now += RENEW_EVERY / 2
        await second.resign()
        assert await pool.gateway.redis.get(f"{pool.prefix}leader") == "a", "only its owner gives the lead up"
        await first.resign()
        await eventually(lambda: len(lines) == 5 + 10 + 2, "the server has told of every call")
    assert await second.ask()


async def test_a_leader_that_is_told_of_another_or_resigns_leads_no_more(pool: Pool, clock: Clock) -> None:
    leadership = Leadership(pool.gateway, pool.prefix, "a")
    assert await leadership.ask()
    await pool.gateway.redis.set(f"{pool.prefix}leader", "b")  # as after a failover that lost the lease
    assert leadership.leading
    clock.now += RENEW_EVERY
    assert not await leadership.ask()
    assert not leadership.leading

    await pool.gateway.redis.delete(f"{pool.prefix}leader")
    assert await leadership.ask()
    await leadership.resign()
    assert not leadership.leading
    await pool.gateway.redis.set(f"{pool.prefix}leader", "b")
    assert not await leadership.ask(), "its last renewal is not a second old, and means nothing any more"


async def test_a_scheduler_that_was_frozen_between_two_duties_leaves_the_second(
    pool: Pool, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def slow(_: Housekeeping) -> bool:
        clock.now += LEASE
        return False

    monkeypatch.setattr(Housekeeping, "do", slow)
    rounds = Rounds(pool.gateway, pool.name, "a")
    async with monitored(pool) as lines:
        await rounds.go()
        await rounds.leadership.resign()
        await eventually(lambda: len(lines) == 2, "the server has told of both calls")
    assert [line.script for line in lines] == ["lead", "lead"]


async def test_it_rests_less_than_a_pause_only_while_there_is_more_to_do_and_nothing_fails(
    pool: Pool, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause = pytest.approx(PACE / 6, abs=0.001)  # pool time moves a sixth of the lease of 1 s in one call
    rounds = Rounds(pool.gateway, pool.name, "a")
    assert await rounds.go() == pause

    async def more(_: object) -> bool:
        return True

    async def broken(_: object) -> bool:
        raise KeyError("a bug")

    async def rests_less() -> bool:
        return await rounds.go() < PACE / 12

    monkeypatch.setattr(Housekeeping, "do", more)
    await eventually(rests_less, "with more to do it rests as long as it worked")
    monkeypatch.setattr(Housekeeping, "do", broken)
    monkeypatch.setattr(Retention, "due", True)
    monkeypatch.setattr(Retention, "do", more)
    assert await rounds.go() == pause
    assert rounds.failures.since is not None

    await pool.gateway.redis.set(f"{pool.prefix}leader", "b")
    clock.now += RENEW_EVERY
    assert await rounds.go() == STAND_BY
    assert rounds.failures.since is None, "what failed is another's to do now"


class Clock:
    """Monotonic time as the leader reads it; `freeze_for` is how long the process is frozen right after it has sent its next call."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.freeze_for = 0.0

    def monotonic(self) -> float:
        read, self.now, self.freeze_for = self.now, self.now + self.freeze_for, 0.0
        return read


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(leader, "time", made)
    return made


class Line:
    """One script call, as the server saw it."""

    def __init__(self, seen: dict[str, Any]) -> None:
        self.client = (seen["client_address"], seen["client_port"])
        self.text = str(seen["command"])
        self.script = next((name for name in loader.names() if loader.load(name).sha in self.text), "")


@contextlib.asynccontextmanager
async def monitored(pool: Pool) -> AsyncGenerator[list[Line]]:
    """What clients send while the block runs; the commands inside of scripts are left out."""
    lines: list[Line] = []
    async with pool.gateway.redis.monitor() as monitor:

        async def read() -> None:
            while True:
                seen = cast("dict[str, Any]", await monitor.next_command())
                if seen["client_type"] != "lua" and "evalsha" in str(seen["command"]).lower():
                    lines.append(Line(seen))

        reading = asyncio.create_task(read())
        try:
            yield lines
        finally:
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading


# What the leader does ----------------------------------------------------------------------------------------------


async def test_L4_the_permit_of_a_dead_worker_comes_back_and_the_next_is_admitted_in_that_same_step(
    shared_server: EmbeddedServer, pool: Pool, worker: FakeWorker
) -> None:
    doomed = FakeWorker(pool, "doomed")
    await doomed.join()
    first, second = [await pool.spawn(TYPE) for _ in range(2)]
    assert await doomed.claim() == [first.id]
    await doomed.die()
    async with scheduling(shared_server.url, pool):
        lost = await first.wait(timeout=20)
    assert (lost.status, lost.error_kind, lost.worker) == ("error", "worker_lost", "doomed")
    ended = [(event.kind, event.agent_id) for event in await history(pool)]
    at = ended.index(("error", first.id))
    assert ended[at + 1] == ("admitted", second.id)
    assert await worker.claim() == [second.id]
    await worker.complete(second.id)
    await assert_quiet(pool)


async def test_an_agent_whose_job_arq_lost_is_dispatched_again(shared_server: EmbeddedServer, pool: Pool, worker: FakeWorker) -> None:
    handle = await pool.spawn(TYPE)
    queue = keys.arq_queue(pool.name, TYPE)
    assert await pool.gateway.redis.zremrangebyrank(queue, 0, -1) == 1
    async with scheduling(shared_server.url, pool):
        await eventually(lambda: pool.gateway.redis.zcard(queue), "the job is in arq's queue again")
    assert [event.facts["reason"] for event in await history(pool, "redispatched")] == ["delivery_lost"]
    assert await worker.claim() == [handle.id]
    await worker.complete(handle.id)
    assert (await handle.wait(timeout=5)).result == 42
    await assert_quiet(pool)


async def test_I9_an_interrupt_over_a_thousand_queued_is_carried_through_without_its_sender(
    shared_server: EmbeddedServer, pool: Pool, worker: FakeWorker
) -> None:
    await pool.spawn_many([SpawnRequest.of(type=TYPE) for _ in range(1000)])
    async with scheduling(shared_server.url, pool):
        sent_at, interrupt_id = time.monotonic(), keys.new_id()
        await pool.gateway(calls.interrupt(pool.prefix, interrupt_id, "*", force=False, kill=False, reason="test", by="test"))
        await eventually(lambda: reported(pool, interrupt_id), "the interrupt is complete")
        print(f"1000 queued were swept by the scheduler within {time.monotonic() - sent_at:.2f} s")
    assert (await pool.interrupt_report(interrupt_id)).queued_stopped == 1000
    assert len(await history(pool, "stopped")) == 1000
    assert await worker.claim(10) == []
    await assert_quiet(pool)


async def reported(pool: Pool, interrupt_id: str) -> bool:
    return (await pool.interrupt_report(interrupt_id)).complete


async def test_P10_retention_drops_records_and_list_entries_and_leaves_tombstones(
    shared_server: EmbeddedServer, pool: Pool, worker: FakeWorker
) -> None:
    redis = pool.gateway.redis
    await cast("Awaitable[int]", redis.hset(f"{pool.prefix}config", mapping={"keep_settled": "1", "max_concurrent": "250"}))
    handles = await pool.spawn_many([SpawnRequest.of(type=TYPE) for _ in range(250)])
    for agent_id in await worker.claim(250):
        await worker.complete(agent_id)
    assert await redis.zcard(f"{pool.prefix}settled") == 250
    async with scheduling(shared_server.url, pool):
        await eventually(lambda: is_empty(pool, "settled"), "all 250 are dropped, in portions")
    for index in ("index:all", f"index:type:{TYPE}", "index:status:completed"):
        assert await is_empty(pool, index), index
    with pytest.raises(AgentExpired):
        await handles[0].get()
    assert await redis.ttl(f"{pool.prefix}gone:{handles[0].id}") > 6 * 86400
    await assert_quiet(pool)


async def is_empty(pool: Pool, name: str) -> bool:
    return not await pool.gateway.redis.exists(f"{pool.prefix}{name}")


async def test_work_whose_wake_up_was_lost_wakes_a_worker_long_before_its_lease_is_over(shared_server: EmbeddedServer) -> None:
    async with opened(shared_server.url, lease=60) as pool:
        worker = FakeWorker(pool, "steady")
        await worker.join()
        handle = await pool.spawn(TYPE)
        async with scheduling(shared_server.url, pool):
            await pool.gateway.redis.delete(f"{pool.prefix}wake:{TYPE}")
            assert await wait_for_wake(pool.gateway, pool.prefix, [TYPE], 3)
        assert await worker.claim() == [handle.id]
        await worker.complete(handle.id)
        await worker.die()


async def test_pool_time_keeps_up_at_the_shortest_lease_when_nobody_else_calls(shared_server: EmbeddedServer, pool: Pool) -> None:
    async def pool_time() -> float:
        return int(await cast("Awaitable[Any]", pool.gateway.redis.hget(f"{pool.prefix}clock", "now"))) / 1000

    async with scheduling(shared_server.url, pool):
        began, before = time.monotonic(), await pool_time()

        async def three_seconds_on() -> bool:
            return await pool_time() >= before + 3

        await eventually(three_seconds_on, "pool time moved on by 3 s")
        took = time.monotonic() - began
    print(f"3 s of pool time took {took:.2f} s")
    assert took < 3 + NOISE


async def test_without_any_scheduler_an_agent_is_spawned_run_and_settled(pool: Pool, worker: FakeWorker) -> None:
    first, second = [await pool.spawn(TYPE) for _ in range(2)]
    for handle in (first, second):
        assert await wait_for_wake(pool.gateway, pool.prefix, [TYPE], 3)
        assert await worker.claim() == [handle.id]
        await worker.complete(handle.id)
        assert (await handle.wait(timeout=5)).status == "completed"
    assert await pool.gateway.redis.get(f"{pool.prefix}leader") is None
    await assert_quiet(pool)


async def test_G3_a_scheduler_makes_the_pool_and_leaves_the_settings_of_one_that_exists(shared_server: EmbeddedServer) -> None:
    name = f"test-{keys.new_id()[:8]}"
    for limit in (7, 9):
        async with Scheduler(shared_server.url, pool=name, max_concurrent=limit, lease=2), Pool(shared_server.url, name=name) as pool:
            assert (await pool.stats()).max_concurrent == 7


def test_G2_a_scheduler_refuses_settings_out_of_their_bounds_at_the_door() -> None:
    for settings in ({"max_concurrent": -1}, {"lease": 0.5}, {"pool": "a b"}):
        with pytest.raises(InvalidArgument):
            Scheduler("redis://127.0.0.1:6379/0", **cast("dict[str, Any]", settings))


async def test_an_idle_scheduler_is_cheap(own_server: EmbeddedServer) -> None:
    async def per_second(watched: Pool, seconds: float) -> tuple[float, float]:
        """Calls that clients sent, and commands that the server ran for them, those inside of scripts included."""

        async def counts() -> tuple[int, int]:
            facts = cast("dict[str, Any]", await watched.gateway.redis.info("all"))
            sent = sum(facts.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha", "eval", "hget"))
            return sent, facts["total_commands_processed"]

        began, before = time.monotonic(), await counts()
        await asyncio.sleep(seconds)  # the time over which the rate is measured
        after, took = await counts(), time.monotonic() - began
        return (after[0] - before[0]) / took, (after[1] - before[1] - 1) / took

    async with opened(own_server.url) as pool, scheduling(own_server.url, pool):
        alone = await per_second(pool, 3)
        async with Scheduler(own_server.url, pool=pool.name):
            both = await per_second(pool, 3)
    print(f"a leader sends {alone[0]:.1f} calls/s ({alone[1]:.0f} commands run), a standby {both[0] - alone[0]:.1f} calls/s")
    assert alone[0] < 10
    assert both[0] - alone[0] < 3


# What it outlives --------------------------------------------------------------------------------------------------

Fault = Callable[[EmbeddedServer, Pool], Awaitable[None]]


async def _kill(running: EmbeddedServer, pool: Pool) -> None:
    await asyncio.to_thread(running.kill)


async def _restart(running: EmbeddedServer, pool: Pool) -> None:
    await asyncio.to_thread(running.restart)


async def _flush_scripts(running: EmbeddedServer, pool: Pool) -> None:
    await pool.gateway.redis.script_flush()


async def _kill_clients(running: EmbeddedServer, pool: Pool) -> None:
    await pool.gateway.redis.execute_command("CLIENT", "KILL", "TYPE", "normal")  # type: ignore[no-untyped-call]


async def _become_read_only_for_a_while(running: EmbeddedServer, pool: Pool) -> None:
    redis = pool.gateway.redis
    await redis.execute_command("REPLICAOF", "127.0.0.1", "1")  # type: ignore[no-untyped-call]
    await asyncio.sleep(1)  # as long as the fault lasts
    await redis.execute_command("REPLICAOF", "NO", "ONE")  # type: ignore[no-untyped-call]


async def _fill_memory_for_a_while(running: EmbeddedServer, pool: Pool) -> None:
    await pool.gateway.redis.config_set("maxmemory", "1mb")
    await asyncio.sleep(1)  # as long as the fault lasts
    await pool.gateway.redis.config_set("maxmemory", "0")


async def _damage_a_key_for_a_while(running: EmbeddedServer, pool: Pool) -> None:
    redis = pool.gateway.redis
    await redis.set(f"{pool.prefix}settled", "not a sorted set")
    await asyncio.sleep(1)  # as long as the fault lasts
    await redis.delete(f"{pool.prefix}settled")


async def _restart_and_load_for_a_while(running: EmbeddedServer, pool: Pool) -> None:
    """Two seconds in which the server answers LOADING: it was started with a delay for each command that it reads back."""
    pipeline = pool.gateway.redis.pipeline()
    for number in range(6000):
        pipeline.set(f"filler:{number}", number)
    await pipeline.execute()
    await asyncio.to_thread(running.restart)


FAULTS: dict[Fault, str | None] = {
    _kill: None,
    _restart: None,
    _flush_scripts: "",
    _kill_clients: "",
    _become_read_only_for_a_while: "read only",
    _fill_memory_for_a_while: "",
    _damage_a_key_for_a_while: "WRONGTYPE",
    _restart_and_load_for_a_while: None,
}
"""Each fault with what the log says of it: nothing (""), or something that depends on the moment (None)."""


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: cast("Fault", fault).__name__.strip("_"))
async def test_a_scheduler_outlives(own_server: EmbeddedServer, fault: Fault, caplog: pytest.LogCaptureFixture) -> None:
    async with opened(own_server.url, max_concurrent=1, lease=1) as pool, scheduling(own_server.url, pool) as scheduler:
        await fault(own_server, pool)
        healthy_from = time.monotonic()

        def well_again() -> bool:
            state = scheduler.state()
            ticked = state.last_tick_ago_s is not None and state.last_tick_ago_s < time.monotonic() - healthy_from
            return state.leading and state.failing_for_s is None and ticked

        await eventually(well_again, "the scheduler leads and does its rounds again")
        worker = FakeWorker(pool, "doomed")
        await worker.join()
        handle = await pool.spawn(TYPE)
        assert await worker.claim() == [handle.id]
        await worker.die()
        assert (await handle.wait(timeout=20)).error_kind == "worker_lost"
    said = [record.getMessage() for record in caplog.records if record.name.startswith("subagents.scheduler")]
    assert len({line.partition(" fails ")[0] for line in said}) == len(said), f"each duty says it once: {said}"
    if (expected := FAULTS[fault]) is not None:
        assert bool(said) == bool(expected), said
        assert expected in "".join(said)


async def test_an_outage_is_said_once_and_so_is_its_end(own_server: EmbeddedServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="subagents.scheduler")
    async with opened(own_server.url) as pool, scheduling(own_server.url, pool) as scheduler:
        await asyncio.to_thread(own_server.kill, restart=False)
        await eventually(lambda: (scheduler.state().failing_for_s or 0) > 2, "it has failed for two seconds")
        state = scheduler.state()
        assert state.running
        assert "RedisUnreachable" in str(state.last_error)
        await asyncio.to_thread(own_server.restart)
        await eventually(lambda: scheduler.state().leading and scheduler.state().failing_for_s is None, "it leads again")
    said = [record.getMessage() for record in caplog.records if record.name.startswith("subagents.scheduler")]
    assert sum("fails" in line for line in said) == 1, said
    assert sum("well again" in line for line in said) == 1, said


async def test_a_bug_in_one_duty_is_logged_with_its_trace_and_stops_neither_the_others_nor_the_scheduler(
    shared_server: EmbeddedServer, pool: Pool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried = 0

    async def broken(self: Housekeeping) -> bool:
        nonlocal tried
        tried += 1
        raise KeyError("a bug")

    monkeypatch.setattr(Housekeeping, "do", broken)
    async with scheduling(shared_server.url, pool) as scheduler:
        await eventually(lambda: tried >= 3, "the broken duty is tried again")
        assert scheduler.state().leading
        assert scheduler.state().last_error == "housekeeping: KeyError: 'a bug'"
    (said,) = [record for record in caplog.records if "housekeeping fails" in record.getMessage()]
    assert said.exc_info


async def test_it_stops_within_seconds_although_the_server_hangs(own_server: EmbeddedServer) -> None:
    async with opened(own_server.url) as pool, scheduling(own_server.url, pool) as scheduler:
        os.kill(own_server.pid, signal.SIGSTOP)
        hung_at = time.monotonic()
        await scheduler.stop()
        took = time.monotonic() - hung_at
        os.kill(own_server.pid, signal.SIGCONT)
    print(f"it stopped {took:.2f} s after the server hung")
    assert took < STOP_WITHIN + RESIGN_WITHIN + 2 * NOISE


# The service -------------------------------------------------------------------------------------------------------


async def test_it_starts_and_stops_any_number_of_times_and_leaves_nothing_behind(shared_server: EmbeddedServer, pool: Pool) -> None:
    async def connections() -> int:
        return len(cast("list[Any]", await pool.gateway.redis.client_list()))

    before, tasks = await connections(), asyncio.all_tasks()
    scheduler = Scheduler(shared_server.url, pool=pool.name)
    assert "stopped" in repr(scheduler)
    for turn in range(50):
        await asyncio.gather(scheduler.start(), scheduler.start())
        assert scheduler.state().running
        if turn % 5 == 0:
            await eventually(lambda: scheduler.state().leading, "it leads at once, because it resigned before")
            assert "leading" in repr(scheduler)
        if turn % 3 == 0:
            await asyncio.gather(scheduler.stop(), scheduler.start(), scheduler.stop())
        await asyncio.gather(scheduler.stop(), scheduler.stop())
        assert not scheduler.state().running
    assert asyncio.all_tasks() == tasks

    async def as_before() -> bool:
        return await connections() == before

    await eventually(as_before, "its connections are closed")
    assert await pool.gateway.redis.get(f"{pool.prefix}leader") is None


async def test_cancelling_start_or_stop_leaves_nothing_behind(shared_server: EmbeddedServer, pool: Pool) -> None:
    tasks = asyncio.all_tasks()
    scheduler = Scheduler(shared_server.url, pool=pool.name)
    for turns in range(30):
        for step in (scheduler.start, scheduler.stop):
            doing = asyncio.ensure_future(step())
            for _ in range(turns):
                await asyncio.sleep(0)
            doing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await doing
    await scheduler.stop()
    assert not scheduler.state().running
    assert asyncio.all_tasks() == tasks


async def test_run_ends_by_stop_and_by_cancellation(shared_server: EmbeddedServer, pool: Pool) -> None:
    scheduler = Scheduler(shared_server.url, pool=pool.name)
    running = asyncio.create_task(scheduler.run())
    await eventually(lambda: scheduler.state().leading, "it leads")
    await scheduler.stop()
    await asyncio.wait_for(running, 5)

    running = asyncio.create_task(scheduler.run())
    await eventually(lambda: (scheduler.state().leading_for_s or 0) > 0.5, "it leads again, and goes on")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not scheduler.state().running


async def test_a_signal_ends_a_start_that_waits_for_its_server(tmp_path: Path) -> None:
    scheduler = Scheduler(f"unix://{tmp_path}/nobody.sock")
    running = asyncio.create_task(scheduler.run())
    await asyncio.sleep(0)  # it begins: the signals are its own from here on
    os.kill(os.getpid(), signal.SIGTERM)
    began = time.monotonic()
    await asyncio.wait_for(running, 2)
    assert time.monotonic() - began < 1
    assert not scheduler.state().running


async def test_a_server_that_is_not_there_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(RedisUnreachable, match=r"nobody\.sock does not answer"):
        await Scheduler(f"unix://{tmp_path}/nobody.sock").start()


# The server that it needs ------------------------------------------------------------------------------------------


async def test_a_server_that_evicts_keys_is_refused(own_server: EmbeddedServer, caplog: pytest.LogCaptureFixture) -> None:
    async with opened(own_server.url) as pool:
        await pool.gateway.redis.config_set("maxmemory-policy", "allkeys-lru")
        async with Scheduler(own_server.url, pool=pool.name):
            assert "would evict keys" in caplog.text  # its memory has no bound, so nothing is evicted yet
        await pool.gateway.redis.config_set("maxmemory", "100mb")
        with pytest.raises(UnfitServer, match="noeviction"):
            await Scheduler(own_server.url, pool=pool.name).start()


async def test_a_server_that_keeps_nothing_on_disk_is_warned_of(own_server: EmbeddedServer, caplog: pytest.LogCaptureFixture) -> None:
    async with opened(own_server.url) as pool:
        await pool.gateway.redis.config_set("appendonly", "no")
        await pool.gateway.redis.config_set("save", "")
        async with Scheduler(own_server.url, pool=pool.name):
            assert "keeps nothing on disk" in caplog.text
        caplog.clear()
        await pool.gateway.redis.config_set("save", "3600 1")
        async with Scheduler(own_server.url, pool=pool.name):
            assert "on disk" not in caplog.text


async def test_a_server_that_does_not_tell_its_settings_is_warned_of_once(
    own_server: EmbeddedServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(own_server.url) as pool:
        redis = pool.gateway.redis
        await redis.execute_command("ACL", "SETUSER", "narrow", "on", ">secret", "~*", "&*", "+@all", "-config", "-info")  # type: ignore[no-untyped-call]
        url = own_server.url.replace("redis://", "redis://narrow:secret@")
        async with scheduling(url, pool):
            pass
    said = [record.getMessage() for record in caplog.records if record.name.startswith("subagents.scheduler")]
    assert len(said) == 1, said
    assert "does not tell its version, maxmemory-policy, appendonly, save" in said[0]
    assert "secret" not in said[0]


def test_a_server_older_than_redis_7_is_refused() -> None:
    fit = ServerFacts(version=(7, 0), eviction="noeviction", maxmemory=0, persistent=True)
    fitness.check(fit, "there")
    with pytest.raises(UnfitServer, match=r"version 6\.2; the oldest that runs a pool is 7\.0"):
        fitness.check(ServerFacts(version=(6, 2), eviction="noeviction", maxmemory=0, persistent=True), "there")
