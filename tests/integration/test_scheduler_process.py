"""The scheduler as a fleet has it: several processes that are killed, frozen and told to go, on servers that fail; and no scheduler at all.

What the service does inside of one process is the matter of `test_scheduler.py`; here everything is judged from outside, by what the
server was asked, by what became of the agents, and by exit codes.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from subagents import Pool, SpawnRequest, Status, keys
from subagents.embedded import EmbeddedServer, server
from subagents.errors import AgentExpired, UnknownAgent
from subagents.handle import AbortAnswer
from subagents.scheduler import Scheduler
from subagents.scheduler.leader import LEASE
from subagents.scripts import calls, loader
from subagents.scripts.replies import Code
from subagents.scripts.wakes import wait_for_wake
from subagents.statuses import Outcome
from support.history import assert_settled_once, history
from support.leaks import assert_quiet
from support.manual_worker import ManualWorker
from support.waiting import eventually
from support.workers import Workers

TYPE = "played"
NOISE = 1.0
"""Seconds that a busy machine may add to a time that is promised."""
AS_A_PROGRAM = """
import asyncio, sys
from subagents.scheduler import Scheduler
asyncio.run(Scheduler(sys.argv[1], pool=sys.argv[2]).run())
"""


# The stage -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def steady_server() -> Generator[EmbeddedServer]:
    """On TCP, so that its clients can be told apart."""
    with server(port=0) as running:
        yield running


@pytest.fixture
def own_server() -> Generator[EmbeddedServer]:
    """For the tests that kill it, set it otherwise, or count what it is asked."""
    with server(appendfsync="always") as running:
        yield running


@pytest.fixture
def forgetful_server() -> Generator[EmbeddedServer]:
    """It keeps nothing on disk."""
    with server(extra=["--appendonly", "no", "--save", ""]) as running:
        yield running


@asynccontextmanager
async def opened(url: str, *, lease: float = 1, max_concurrent: int = 1) -> AsyncGenerator[Pool]:
    name = f"test-{keys.new_id()[:8]}"
    async with Pool(url, name=name, max_concurrent=max_concurrent, lease=lease, by="test") as made:
        yield made


@pytest.fixture
async def pool(steady_server: EmbeddedServer) -> AsyncIterator[Pool]:
    """At limit 1 with the shortest lease."""
    async with opened(steady_server.url) as made:
        yield made


@asynccontextmanager
async def alive(worker: ManualWorker) -> AsyncGenerator[ManualWorker]:
    """The worker has joined, and its heart beats without any of the housekeeping that real ones do, nor for its agents."""

    async def beat() -> None:
        while True:
            await worker.renew()
            await asyncio.sleep(0.1)

    await worker.join()
    heart = asyncio.create_task(beat())
    try:
        yield worker
    finally:
        heart.cancel()
        with suppress(asyncio.CancelledError):
            await heart


@asynccontextmanager
async def scheduling(pool: Pool, url: str) -> AsyncGenerator[Scheduler]:
    """A scheduler in this process, leading, after its first round."""
    async with Scheduler(url, pool=pool.name) as scheduler:
        await eventually(lambda: scheduler.state().last_tick_ago_s is not None, "the scheduler has done a round")
        yield scheduler


class SchedulerProcess:
    """A scheduler in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self.process, self.pid, self._log = process, process.pid, log

    def said(self) -> str:
        return self._log.read_text()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def gone(self) -> int:
        """Its exit code, once it is gone."""
        return await asyncio.wait_for(self.process.wait(), 20)


class Schedulers:
    """Starts them for one pool; ends what is left, by pid."""

    def __init__(self, pool: Pool, url: str, directory: Path) -> None:
        self._pool, self._url, self._directory = pool, url, directory
        self._all: list[SchedulerProcess] = []

    async def start(self) -> SchedulerProcess:
        """As a service of one's own would run it."""
        return await self._launch("-c", AS_A_PROGRAM, self._url, self._pool.name)

    async def command(self) -> SchedulerProcess:
        """As `subagents scheduler`."""
        return await self._launch("-m", "subagents.cli", "scheduler", "--redis", self._url, "--pool", self._pool.name)

    async def _launch(self, *arguments: str) -> SchedulerProcess:
        log = self._directory / f"{self._pool.name}-{len(self._all)}.log"
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, *arguments), stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        self._all.append(SchedulerProcess(process, log))
        return self._all[-1]

    async def leading(self, *, not_: SchedulerProcess | None = None, timeout: float = 20) -> SchedulerProcess:
        """The process that leads, as the server has it, once there is one (other than that)."""

        async def leader() -> SchedulerProcess | None:
            name = await cast("Awaitable[str | None]", self._pool.gateway.redis.get(f"{self._pool.prefix}leader")) or ""
            return next((one for one in self._all if f"-{one.pid}-" in name and one is not not_), None)

        return cast("SchedulerProcess", await eventually(leader, "a scheduler leads", timeout))

    async def end(self) -> None:
        """Also a frozen one dies of SIGKILL. What they have said is shown if the test fails."""
        for scheduler in self._all:
            if scheduler.process.returncode is None:
                scheduler.process.kill()
            print(f"scheduler {scheduler.pid} ended with {await scheduler.gone()}: {scheduler.said()}", file=sys.stderr)


@asynccontextmanager
async def launching(pool: Pool, url: str, directory: Path) -> AsyncGenerator[Schedulers]:
    started = Schedulers(pool, url, directory)
    try:
        yield started
    finally:
        await started.end()


@pytest.fixture
async def schedulers(pool: Pool, steady_server: EmbeddedServer, tmp_path: Path) -> AsyncIterator[Schedulers]:
    async with launching(pool, steady_server.url, tmp_path) as started:
        yield started


@dataclass(frozen=True, slots=True)
class Asked:
    """A script call that the server got: on which connection, which script, and everything that was sent."""

    connection: str
    script: str
    sent: str


@asynccontextmanager
async def overheard(pool: Pool) -> AsyncGenerator[list[Asked]]:
    """What the server is asked on this pool while the block runs; the commands inside of scripts are left out."""
    script_of = {loader.load(name).sha: name for name in loader.names()}
    asked: list[Asked] = []

    def note(seen: dict[str, Any]) -> None:
        words = str(seen["command"]).split()
        if seen["client_type"] != "lua" and words[0].lower() in ("eval", "evalsha") and pool.prefix in words:
            asked.append(Asked(f"{seen['client_address']}:{seen['client_port']}", script_of.get(words[1], "?"), " ".join(words)))

    async with pool.gateway.redis.monitor() as monitor:

        async def listen() -> None:
            while True:
                note(cast("dict[str, Any]", await monitor.next_command()))

        listening = asyncio.create_task(listen())
        try:
            yield asked
        finally:
            listening.cancel()
            with suppress(asyncio.CancelledError):
                await listening


def connections_of(scheduler: SchedulerProcess, asked: list[Asked]) -> set[str]:
    """Those on which it has asked for the lead."""
    return {one.connection for one in asked if one.script == "lead" and f"-{scheduler.pid}-" in one.sent}


# Who leads -----------------------------------------------------------------------------------------------------------


async def test_of_three_processes_exactly_one_leads_and_only_that_one_acts(pool: Pool, schedulers: Schedulers) -> None:
    async with overheard(pool) as asked:
        three = [await schedulers.start() for _ in range(3)]
        leader = await schedulers.leading()
        await eventually(lambda: all(len(words_of(each, asked)) >= 3 for each in three), "each has spoken three times")
        assert await schedulers.leading() is leader
        acted = {one.connection for one in asked if one.script in ("tend", "retain")}
        assert acted
        assert acted <= connections_of(leader, asked)


async def test_the_lead_moves_on_when_its_holder_is_frozen_and_when_it_is_killed(steady_server: EmbeddedServer, tmp_path: Path) -> None:
    """It is frozen while it rests: between looking at its trust window and sending there is an instant that no process can exclude."""
    async with (
        opened(steady_server.url, lease=15) as pool,
        launching(pool, steady_server.url, tmp_path) as schedulers,
        overheard(pool) as asked,
    ):
        two = [await schedulers.start() for _ in range(2)]
        first = await schedulers.leading()
        await eventually(lambda: all(connections_of(each, asked) for each in two), "one leads, one stands by")
        await eventually(lambda: words_of(first, asked)[-2:] in (["tend", "tend"], ["lead", "tend"]), "the leader has acted, and rests")
        first.send(signal.SIGSTOP)
        second = await schedulers.leading(not_=first)
        thawed_from = len(asked)
        first.send(signal.SIGCONT)
        await eventually(lambda: len(words_of(first, asked, thawed_from)) >= 2, "the first has spoken twice")
        assert set(words_of(first, asked, thawed_from)) == {"lead"}, "it does not act: another one leads"
        assert await schedulers.leading() is second

        second.send(signal.SIGKILL)
        killed_at = time.monotonic()
        await schedulers.leading(not_=second)
        took = time.monotonic() - killed_at
        words = await eventually(lambda: acting(words_of(first, asked, thawed_from)), "the first acts again")
        assert words[words.index("tend") - 1] == "lead", "once it has got the lead"
    print(f"the standby led {took:.2f} s after the leader was killed")
    assert took < LEASE + 1


def words_of(scheduler: SchedulerProcess, asked: list[Asked], since: int = 0) -> list[str]:
    """The scripts that a scheduler has called."""
    connections = connections_of(scheduler, asked)
    return [one.script for one in asked[since:] if one.connection in connections]


def acting(words: list[str]) -> list[str]:
    return words if "tend" in words else []


async def test_the_command_resigns_on_sigterm_and_the_standby_leads(forgetful_server: EmbeddedServer, tmp_path: Path) -> None:
    async with opened(forgetful_server.url) as pool, launching(pool, forgetful_server.url, tmp_path) as schedulers:
        first = await schedulers.command()
        assert await schedulers.leading() is first
        await eventually(lambda: "runs; Ctrl-C ends it" in first.said(), "it has said that it runs")
        async with overheard(pool) as asked, Scheduler(forgetful_server.url, pool=pool.name) as standby:
            await eventually(lambda: any(standby.name in one.sent for one in asked), "the standby stands by")
            first.send(signal.SIGTERM)
            told_at = time.monotonic()
            await eventually(lambda: standby.state().leading, "the standby leads")
            followed = time.monotonic() - told_at
            assert await first.gone() == 0
            went = time.monotonic() - told_at
    print(f"told to go, it was gone after {went:.2f} s; the standby led after {followed:.2f} s")
    assert followed < 2
    assert went < 2 + NOISE
    warning, introduction = sorted(first.said().splitlines())
    assert introduction == f"scheduler of pool {pool.name} runs; Ctrl-C ends it"
    assert "keeps nothing on disk" in warning


# What the leader does ------------------------------------------------------------------------------------------------


async def test_L4_L15_what_a_dead_worker_held_comes_back_and_the_next_is_admitted(pool: Pool, steady_server: EmbeddedServer) -> None:
    doomed = ManualWorker(pool, TYPE)
    async with alive(ManualWorker(pool, TYPE)) as steady:
        await doomed.join()
        first, second = [await pool.spawn(TYPE) for _ in range(2)]
        (held,) = await doomed.claim()
        claimed_at = time.monotonic()
        async with scheduling(pool, steady_server.url):
            lost = await first.wait(timeout=20)
            took = time.monotonic() - claimed_at
            assert (lost.status, lost.error_kind, lost.worker) == (Status.ERROR, "worker_lost", doomed.name)
            (spec,) = await steady.claim()
            assert spec.id == second.id
            assert (await doomed.finish(held, Outcome.COMPLETED)).code is Code.STALE
            await steady.finish(spec, Outcome.COMPLETED, "42")
        assert (await first.get()).status is Status.ERROR
        assert (await second.get()).result == 42
    told = [(event.kind, event.agent_id) for event in await history(pool)]
    assert told[told.index(("error", first.id)) + 1] == ("admitted", second.id), "in the same step"
    assert_settled_once(await history(pool))
    print(f"a lease of 1 s was reaped after {took:.2f} s")
    assert 1 <= took < 2 + NOISE
    await assert_quiet(pool)


async def test_a_job_that_arq_lost_is_dispatched_again(pool: Pool, steady_server: EmbeddedServer) -> None:
    async with alive(ManualWorker(pool, TYPE)) as worker:
        handle = await pool.spawn(TYPE)
        queue = keys.arq_queue(pool.name, TYPE)
        (job,) = await pool.gateway.redis.zrange(queue, 0, -1)
        assert await pool.gateway.redis.zrem(queue, job) == 1
        async with scheduling(pool, steady_server.url):
            await eventually(lambda: pool.gateway.redis.zcard(queue), "the job is in arq's queue again")
            (spec,) = await worker.claim()
            await worker.finish(spec, Outcome.COMPLETED)
    assert (spec.id, keys.arq_job_id(pool.name, spec.id, spec.token) == job) == (handle.id, False), "the same agent, another token"
    told = [(event.kind, event.facts.get("reason")) for event in await history(pool) if event.agent_id == handle.id]
    assert told == [("created", None), ("admitted", None), ("redispatched", "delivery_lost"), ("started", None), ("completed", None)]
    await assert_quiet(pool)


async def test_I9_an_interrupt_is_carried_through_although_its_sender_sweeps_nothing(pool: Pool, steady_server: EmbeddedServer) -> None:
    async with alive(ManualWorker(pool, TYPE)) as worker:
        await pool.spawn_many([SpawnRequest(type=TYPE) for _ in range(1001)])
        (running,) = await worker.claim()
        interrupt_id = keys.new_id()
        async with scheduling(pool, steady_server.url):
            await pool.gateway(calls.interrupt(pool.prefix, interrupt_id, "*", force=False, kill=False, reason="all", by="nobody"))
            sent_at = time.monotonic()
            await eventually(lambda: told_to_stop(pool, interrupt_id), "the running one is told")

            async def records_follow() -> bool:
                await worker.renew(running)
                return cast("int", await pool.gateway.redis.zcard(f"{pool.prefix}settled")) == 1000

            await eventually(records_follow, "1000 records are swept")
            print(f"a scheduler swept 1000 queued agents in {time.monotonic() - sent_at:.2f} s")
            assert not (await pool.interrupt_report(interrupt_id)).complete
            assert (await worker.renew(running)).codes == ("stop",)
            await worker.finish(running, Outcome.STOPPED)
            report = await pool.interrupt_report(interrupt_id)
    assert report.complete
    assert (report.queued_stopped, [agent.id for agent in report.agents]) == (1000, [running.id])
    assert_settled_once(await history(pool))
    await assert_quiet(pool)


async def told_to_stop(pool: Pool, interrupt_id: str) -> bool:
    return len((await pool.interrupt_report(interrupt_id)).agents) == 1


async def test_P10_retention_drops_what_has_expired_and_leaves_tombstones(pool: Pool, steady_server: EmbeddedServer) -> None:
    redis = pool.gateway.redis
    async with alive(ManualWorker(pool, TYPE)) as worker:
        due, gone_already, fresh = [await pool.spawn(TYPE, scopes=["s"]) for _ in range(3)]
        for _ in range(3):
            (spec,) = await worker.claim()
            await worker.finish(spec, Outcome.COMPLETED, "1")
        await redis.zadd(f"{pool.prefix}settled", {due.id: 1, gone_already.id: 1}, xx=True)
        for part in ("agent", "input", "result"):
            await redis.delete(f"{pool.prefix}{part}:{gone_already.id}")  # as the server does when their own time is over
        assert len(await pool.list()) < 3
        async with scheduling(pool, steady_server.url):

            async def only_the_fresh_one() -> bool:
                return cast("list[str]", await redis.zrange(f"{pool.prefix}settled", 0, -1)) == [fresh.id]

            await eventually(only_the_fresh_one, "two have left")
    assert (await fresh.get()).result == 1
    for handle in (due, gone_already):
        with pytest.raises(AgentExpired):
            await handle.get()
        assert await handle.abort() is AbortAnswer.ALREADY_TERMINAL
        assert await redis.ttl(f"{pool.prefix}gone:{handle.id}") > 6 * 86400
        found = cast("AsyncIterator[str]", redis.scan_iter(match=f"{pool.prefix}*:{handle.id}"))
        assert [key async for key in found] == [f"{pool.prefix}gone:{handle.id}"]
    with pytest.raises(UnknownAgent):
        await pool.get(keys.new_id())
    for index in ("all", f"type:{TYPE}", "status:completed", "scope:s"):
        assert await redis.zrange(f"{pool.prefix}index:{index}", 0, -1) == [fresh.id], index
    await assert_quiet(pool)


async def spawn_unannounced(pool: Pool, type: str, input: Any = None) -> str:
    """Spawn an agent whose wake-up is lost, whoever blocks for it: the server serves those only after the transaction."""
    agent_id = keys.new_id()
    call = calls.spawn(pool.prefix, [SpawnRequest(type=type, input=input).wire(agent_id)])
    async with pool.gateway.redis.pipeline(transaction=True) as transaction:
        transaction.eval(loader.load(call.script).source, 1, pool.prefix, *call.args)
        transaction.delete(f"{pool.prefix}wake:{type}")
        _, lost = await transaction.execute()
    assert lost == 1
    return agent_id


async def test_a_lost_wake_up_is_made_up_for(steady_server: EmbeddedServer, tmp_path: Path) -> None:
    """At a long lease, so that the worker's own heartbeat and its own looking again, every 2 s, are not what helps."""
    async with opened(steady_server.url, lease=60, max_concurrent=10) as pool:
        async with alive(ManualWorker(pool, TYPE)), scheduling(pool, steady_server.url):
            blocked = asyncio.create_task(wait_for_wake(pool.gateway, pool.prefix, [TYPE], 5))
            await eventually(lambda: blocks(pool), "a worker blocks for work")
            await spawn_unannounced(pool, TYPE)
            lost_at = time.monotonic()
            assert await blocked
            woken = time.monotonic() - lost_at
        await pool.interrupt()

        workers = Workers(pool, steady_server.url, tmp_path, tmp_path / "probe.log")
        started: list[float] = []
        try:
            await workers.start()
            async with scheduling(pool, steady_server.url):
                for _ in range(3):
                    await eventually(lambda: blocks(pool), "the worker blocks for work")
                    agent_id = await spawn_unannounced(pool, "echo", {"value": 1})
                    record = await pool.handle(agent_id).wait(timeout=20)
                    assert record.started_at is not None
                    started.append((record.started_at - record.enqueued_at).total_seconds())
        finally:
            await workers.stop()
    print(f"after a lost wake-up one who blocks was woken after {woken:.2f} s, and real work began within {max(started):.2f} s")
    assert woken < 1 + NOISE
    assert max(started) < 1 + NOISE


async def blocks(pool: Pool) -> bool:
    clients = cast("list[dict[str, str]]", await pool.gateway.redis.client_list())
    return any(client["cmd"] == "blpop" and "b" in client["flags"] for client in clients)


# What it outlives ----------------------------------------------------------------------------------------------------

Fault = Callable[[EmbeddedServer, Pool], Awaitable[Any]]


async def kill_the_server(running: EmbeddedServer, pool: Pool) -> None:
    await asyncio.to_thread(running.kill, restart=False)
    await asyncio.to_thread(running.restart)


async def flush_its_scripts(running: EmbeddedServer, pool: Pool) -> None:
    await pool.gateway.redis.script_flush()


async def kill_its_clients(running: EmbeddedServer, pool: Pool) -> None:
    await pool.gateway.redis.execute_command("CLIENT", "KILL", "TYPE", "normal")  # type: ignore[no-untyped-call]


async def flush_everything(running: EmbeddedServer, pool: Pool) -> None:
    """The pool is gone, and someone makes it anew."""
    await pool.gateway.redis.flushall()
    await pool.open()


async def test_a_running_scheduler_outlives_whatever_befalls_its_server(own_server: EmbeddedServer, tmp_path: Path) -> None:
    """One process through all of it; after each fault it still takes back what a dead worker held."""
    faults: list[Fault] = [kill_the_server, flush_its_scripts, kill_its_clients, flush_everything]
    async with opened(own_server.url) as pool, launching(pool, own_server.url, tmp_path) as schedulers:
        scheduler = await schedulers.start()
        await schedulers.leading()
        for fault in faults:
            await fault(own_server, pool)
            broke_at = time.monotonic()
            doomed = ManualWorker(pool, TYPE)
            await doomed.join()
            handle = await pool.spawn(TYPE)
            assert await doomed.claim()
            assert (await handle.wait(timeout=20)).error_kind == "worker_lost", fault.__name__
            print(f"{fault.__name__.replace('_', ' ')}: healed {time.monotonic() - broke_at:.2f} s later")
        assert await schedulers.leading() is scheduler
        assert scheduler.process.returncode is None
    assert "Traceback" not in scheduler.said()
    assert len(scheduler.said().splitlines()) <= len(faults), scheduler.said()


async def test_it_starts_and_stops_fifty_times_and_leaves_no_descriptor_open(pool: Pool, steady_server: EmbeddedServer) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    scheduler = Scheduler(steady_server.url, pool=pool.name)
    await scheduler.stop()
    before, tasks = descriptors(), asyncio.all_tasks()
    for turn in range(50):
        await scheduler.start()
        await scheduler.start()
        assert scheduler.state().running
        if turn % 10 == 0:
            await eventually(lambda: scheduler.state().leading, "it leads again, because it had resigned")
        await scheduler.stop()
        await scheduler.stop()
        assert not scheduler.state().running
        assert not scheduler.state().leading
        assert await pool.gateway.redis.get(f"{pool.prefix}leader") is None
    await eventually(lambda: descriptors() <= before, "its connections are closed")
    assert asyncio.all_tasks() == tasks


# The server that it needs --------------------------------------------------------------------------------------------


async def test_the_command_refuses_a_server_that_evicts_in_one_line(own_server: EmbeddedServer, tmp_path: Path) -> None:
    async with opened(own_server.url) as pool, launching(pool, own_server.url, tmp_path) as schedulers:
        await pool.gateway.redis.config_set("maxmemory", "100mb")
        await pool.gateway.redis.config_set("maxmemory-policy", "allkeys-lru")
        refused = await schedulers.command()
        assert await refused.gone() == 3
    (line,) = refused.said().splitlines()
    assert line.startswith("error: ")
    assert "allkeys-lru" in line
    assert "set maxmemory-policy to noeviction" in line


# Without it ----------------------------------------------------------------------------------------------------------


async def test_without_any_scheduler_agents_run_and_what_a_dead_worker_held_comes_back(
    steady_server: EmbeddedServer, tmp_path: Path
) -> None:
    async with opened(steady_server.url) as pool:
        workers = Workers(pool, steady_server.url, tmp_path, tmp_path / "probe.log")
        try:
            await workers.start()
            record = await pool.run("echo", {"value": "settled"})
            assert (record.status, record.result) == (Status.COMPLETED, "settled")

            async with alive(ManualWorker(pool, TYPE)) as doomed:
                lost = await pool.spawn(TYPE)
                assert await doomed.claim()
            died_at = time.monotonic()
            waiting = await pool.spawn("echo", {"value": "next"})
            assert (await lost.wait(timeout=20)).error_kind == "worker_lost"
            assert (await waiting.wait(timeout=20)).result == "next"
            took = time.monotonic() - died_at
            assert await pool.gateway.redis.get(f"{pool.prefix}leader") is None
        finally:
            await workers.stop()
        print(f"without a scheduler the permit of a dead worker served the next agent after {took:.2f} s, at a lease of 1 s")
        assert took < 2 + NOISE
        assert_settled_once(await history(pool))


# What it costs -------------------------------------------------------------------------------------------------------

COUNTED_FOR = 5.0
SENT_BY_A_SCHEDULER = ("evalsha", "eval", "hget", "config|get", "ping")
"""What it sends. `hget` is also counted inside of scripts, which is on the safe side."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What the server was asked, and what that came to: commands, those inside of scripts too, and its time."""

    sent: float
    run: float
    microseconds: float

    def __sub__(self, other: Cost) -> Cost:
        return Cost(self.sent - other.sent, self.run - other.run, self.microseconds - other.microseconds)

    def __str__(self) -> str:
        sent, run, microseconds = (count / COUNTED_FOR for count in (self.sent, self.run, self.microseconds))
        return f"sends {sent:.1f} commands/s; for these the server runs {run:.1f} commands in {microseconds:.0f} µs"


async def cost_so_far(pool: Pool) -> Cost:
    facts = cast("dict[str, dict[str, Any]]", await pool.gateway.redis.info("commandstats"))
    count_of = {name.removeprefix("cmdstat_"): int(stats["calls"]) for name, stats in facts.items() if name != "cmdstat_info"}
    return Cost(
        sent=sum(count_of.get(name, 0) for name in SENT_BY_A_SCHEDULER),
        run=sum(count_of.values()),
        microseconds=int(facts["cmdstat_evalsha"]["usec"]),
    )


async def test_an_idle_scheduler_is_cheap(own_server: EmbeddedServer, forgetful_server: EmbeddedServer) -> None:
    """A leader on one server, and a standby on another, where someone else has the lead."""
    async with opened(own_server.url, lease=15) as led, opened(forgetful_server.url, lease=15) as followed:
        assert await followed.gateway(calls.lead(followed.prefix, "someone else", 60_000))
        async with scheduling(led, own_server.url), Scheduler(forgetful_server.url, pool=followed.name) as standby:
            before = await asyncio.gather(cost_so_far(led), cost_so_far(followed))
            await asyncio.sleep(COUNTED_FOR)  # the time over which the rate is taken
            after = await asyncio.gather(cost_so_far(led), cost_so_far(followed))
            assert not standby.state().leading
    of_leading, of_standing_by = after[0] - before[0], after[1] - before[1]
    print(f"a leader {of_leading}")
    print(f"a standby {of_standing_by}")
    assert of_leading.sent < 10 * COUNTED_FOR
    assert of_standing_by.sent <= 2 * COUNTED_FOR
