"""arq is the carrier: its format, a stock worker of it, and the faults of it that must not be ours."""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast

import arq
import arq.connections
import pytest
from arq.connections import ArqRedis
from arq.jobs import Job
from arq.worker import Worker
from redis.asyncio import ConnectionPool, Redis

from subagents import AgentHandle, AgentRecord, ErrorKind, Pool, Status, keys
from subagents.embedded import EmbeddedServer, server
from subagents.scripts import calls
from subagents.scripts.loader import load
from subagents_worker import AgentContext
from subagents_worker.arq_worker import AgentWorker, arq_settings, decode, encode
from subagents_worker.registry import Registry
from subagents_worker.runtime import Runtime
from support.history import assert_first_admissions_in_order, assert_hard_cap, assert_settled_once, history
from support.leaks import assert_quiet
from support.probe import PROBE_VARIABLE, ProbeLog
from support.waiting import eventually
from support.workers import Workers, joined_by

ODD = str(Path(__file__).parent.parent / "agents" / "odd_agents.py")
DAY_MS = 86_400_000

quiet = pytest.mark.usefixtures("quiet")


async def running(handle: AgentHandle) -> AgentRecord:
    async def there() -> AgentRecord | None:
        record = await handle.get()
        return record if record.status is Status.RUNNING else None

    return cast("AgentRecord", await eventually(there, f"{handle} runs", 30))


async def all_settled(handles: list[AgentHandle], timeout: float = 60) -> Counter[Status]:
    return Counter(record.status for record in await asyncio.gather(*(handle.wait(timeout) for handle in handles)))


@asynccontextmanager
async def fleet(url: str, directory: Path, *, limit: int = 4, lease: float = 3) -> AsyncGenerator[tuple[Pool, Workers, ProbeLog]]:
    """A pool with workers on a server that the test may mistreat; at the end nothing may have leaked."""
    async with Pool(url, name=f"test-{secrets.token_hex(4)}", max_concurrent=limit, lease=lease, by="test", patience=30) as pool:
        workers = Workers(pool, url, directory, directory / "probe.log")
        try:
            yield pool, workers, ProbeLog(directory / "probe.log")
            await assert_quiet(pool)
        except BaseException:
            print(workers.logs())
            raise
        finally:
            await workers.stop()


@pytest.fixture
async def own_server() -> AsyncIterator[EmbeddedServer]:
    started = await asyncio.to_thread(server)
    yield started
    await asyncio.to_thread(started.stop)


# The format --------------------------------------------------------------------------------------------------------


def test_arq_is_the_tested_release_and_has_what_is_overridden() -> None:
    assert re.fullmatch(r"0\.28\.\d+", arq.VERSION)
    for name in ("main", "_poll_iteration", "close", "handle_sig", "async_run", "run_job", "finish_job", "finish_failed_job", "start_jobs"):
        assert callable(getattr(Worker, name)), name
    overridden = {name for name in vars(AgentWorker) if name in vars(Worker)} - {"__init__", "__module__", "__doc__"}
    assert overridden == {"main", "_poll_iteration", "close"}


async def test_settings_neutralise_what_arq_does_wrong(redis_url: str) -> None:
    settings = arq_settings(redis_url, "default", "echo", 500)
    [function] = settings["functions"]
    assert (function.name, function.timeout_s, function.max_tries, function.keep_result_s) == ("run_agent", 30 * 86400, 1, 0)
    wanted: dict[str, object] = {
        "job_timeout": 30 * 86400,
        "keep_result": 0,
        "max_tries": 1,
        "retry_jobs": False,
        "allow_abort_jobs": False,
        "log_results": False,
        "handle_signals": False,
    }
    assert {name: settings[name] for name in wanted} == wanted
    assert settings["queue_read_limit"] >= 2500
    assert not {"cron_jobs", "on_job_start", "on_job_end"} & settings.keys()
    assert b"\x80" not in settings["job_serializer"]({"t": None}), "never pickle"
    await settings["redis_pool"].aclose(close_connection_pool=True)


async def test_a_job_is_byte_for_byte_what_enqueue_job_writes(pool: Pool, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    await pool.gateway(calls.join(pool.prefix, "pretended", "{}", {"echo": "{}", "nap": "{}"}))
    first, second = await pool.spawn("echo", {"value": "never in the job"}), await pool.spawn("echo")
    queue = keys.arq_queue(pool.name, "echo")
    arq_redis = ArqRedis(
        ConnectionPool.from_url(redis_url),  # pyright: ignore[reportUnknownMemberType]
        job_serializer=encode,
        job_deserializer=decode,
        default_queue_name=queue,
    )
    async with arq_redis as redis:
        ours = cast("list[tuple[bytes, float]]", await redis.zrange(queue, 0, -1, withscores=True))
        job_ids = [job.decode() for job, _ in ours]
        assert [job.split(":")[1] for job in job_ids] == [first.id, second.id]
        assert all(re.fullmatch(rf"\{{{pool.name}\}}:[0-9a-f]{{20}}:[0-9a-f]{{16}}\.\d+", job) for job in job_ids)
        assert [score for _, score in ours] == [1, 2], "the score is the admission number, so order survives skewed clocks"
        job_key = f"arq:job:{job_ids[0]}"
        written = cast("bytes", await redis.get(job_key))
        stamp = json.loads(written)["et"]
        token = job_ids[0].split(":")[2]

        monkeypatch.setattr(arq.connections, "timestamp_ms", lambda: stamp)
        theirs = await redis.enqueue_job("run_agent", first.id, token, _job_id="contract", _queue_name=f"{queue}:contract")
        assert theirs is not None
        assert written == await redis.get("arq:job:contract")
        assert await redis.type(job_key) == await redis.type("arq:job:contract") == b"string"
        assert await redis.type(queue) == await redis.type(f"{queue}:contract") == b"zset"
        assert await redis.zscore(f"{queue}:contract", "contract") == stamp
        assert max(score for _, score in ours) < stamp, "always due, whatever the worker's clock says"
        assert await redis.pttl(job_key) > 29 * DAY_MS
        assert 0 < await redis.pttl("arq:job:contract") <= DAY_MS
        assert abs(stamp - time.time() * 1000) < 60_000

        read = await Job(job_ids[0], redis, _queue_name=queue, _deserializer=decode).info()
        assert read is not None
        assert (read.function, list(read.args), read.kwargs) == ("run_agent", [first.id, token], {})
        assert cast("int | None", read.job_try) is None
        assert await redis.enqueue_job("run_agent", first.id, token, _job_id=job_ids[0]) is None, "arq knows it as a job of its own"
        await redis.delete("arq:job:contract", f"{queue}:contract")
    await arq_redis.aclose(close_connection_pool=True)
    await pool.interrupt()
    await assert_quiet(pool)


# A stock worker ----------------------------------------------------------------------------------------------------


class Stock:
    """Stock arq workers of one pool."""

    def __init__(self, pool: Pool, url: str, directory: Path) -> None:
        self._pool, self._url, self._directory = pool, url, directory
        self._all: list[asyncio.subprocess.Process] = []

    async def start(self, type: str, *, module: str = ODD, slots: int = 10, grace: float = 5) -> asyncio.subprocess.Process:
        with (self._directory / f"stock-{len(self._all)}.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "support.stock_worker", module, type, str(slots), str(grace)),
                env={
                    **os.environ,
                    "SUBAGENTS_REDIS_URL": self._url,
                    "SUBAGENTS_POOL": self._pool.name,
                    PROBE_VARIABLE: str(self._directory / "probe.log"),
                },
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._all.append(process)

        async def joined() -> bool:
            assert process.returncode is None, self.logs()
            return await joined_by(self._pool, process.pid) == 1

        await eventually(joined, "the stock worker joined", 30)
        return process

    async def stop(self) -> None:
        for process in self._all:
            if process.returncode is None:
                process.kill()
                await process.wait()
        redis = self._pool.gateway.redis
        async for key in cast("AsyncIterator[str]", redis.scan_iter(match=f"arq:queue:{{{self._pool.name}}}:*:health:*")):
            assert await redis.pttl(key) > 0, "what a killed arq worker leaves behind goes by itself"
            await redis.delete(key)

    def logs(self) -> str:
        return "\n".join(path.read_text()[-4000:] for path in sorted(self._directory.glob("stock-*.log")))


@pytest.fixture
async def stock(pool: Pool, redis_url: str, tmp_path: Path) -> AsyncIterator[Stock]:
    started = Stock(pool, redis_url, tmp_path)
    yield started
    await started.stop()
    print(started.logs())


@quiet
async def test_a_stock_worker_runs_the_same_agents(pool: Pool, stock: Stock, probe: ProbeLog) -> None:
    await pool.set_max_concurrent(2)
    await stock.start("nap")
    await stock.start("echo")
    await stock.start("fail")
    handles = [await pool.spawn("echo", {"value": number}) for number in range(20)]
    assert [await handle.result(30) for handle in handles] == list(range(20))
    assert probe.started() == [handle.id for handle in handles]
    failed = await pool.run("fail", {"text": "sorry"})
    assert (failed.status, failed.error_kind) == (Status.ERROR, ErrorKind.AGENT_ERROR)
    assert "RuntimeError: sorry" in str(failed.error)
    timed = await pool.run("nap", {"seconds": 60}, timeout=0.4)
    assert timed.error_kind is ErrorKind.TIMEOUT
    long = await pool.spawn("nap", {"seconds": 4})  # longer than the lease
    assert (await long.wait(20)).status is Status.COMPLETED
    assert probe.peak() <= 2
    events = await history(pool)
    assert_hard_cap(events)
    assert_first_admissions_in_order(events)
    assert_settled_once(events)


@quiet
async def test_a_stock_worker_stops_what_is_interrupted_or_aborted(pool: Pool, stock: Stock, probe: ProbeLog) -> None:
    await stock.start("nap")
    handles = [await pool.spawn("nap", {"seconds": 60}) for _ in range(8)]
    await eventually(lambda: len(probe.started()) == 4, "four run")
    await handles[0].abort("enough")
    assert (await handles[0].wait(10)).status is Status.STOPPED
    await eventually(lambda: len(probe.started()) == 5, "the next one runs")
    report = await pool.interrupt(wait=10)
    assert (report.complete, len(report.agents), report.queued_stopped) == (True, 4, 3)
    assert await all_settled(handles) == {Status.STOPPED: 8}
    assert len(probe.started()) == len(probe.marks("end")) == 5
    assert (await pool.run("nap")).status is Status.COMPLETED


@quiet
async def test_a_stock_worker_that_is_cancelled_hands_back_or_settles_as_shutdown(pool: Pool, stock: Stock, probe: ProbeLog) -> None:
    process = await stock.start("nap")
    again, once = await pool.spawn("nap", {"seconds": 2}, retries=1), await pool.spawn("nap", {"seconds": 2})
    await running(again)
    await running(once)
    process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), 15) == 0
    assert (await once.wait(5)).error_kind is ErrorKind.SHUTDOWN
    assert (await again.get()).status is Status.QUEUED
    assert len(probe.marks("end")) == 2, "its code is out"
    await stock.start("nap")
    record = await again.wait(20)
    assert (record.status, record.attempt) == (Status.COMPLETED, 2)
    assert_settled_once(await history(pool))


@quiet
async def test_a_stock_worker_that_is_cancelled_twice_still_settles_what_it_ran(pool: Pool, stock: Stock, probe: ProbeLog) -> None:
    process = await stock.start("stubborn")
    handle = await pool.spawn("stubborn", {"seconds": 1.5})
    await running(handle)
    process.send_signal(signal.SIGTERM)  # arq cancels its jobs on the signal, and again as it closes
    assert await asyncio.wait_for(process.wait(), 15) == 0
    record = await handle.wait(5)
    assert (record.status, record.result) == (Status.COMPLETED, "out at last")
    assert len(probe.marks("end")) == 1


@quiet
async def test_a_stock_worker_that_is_killed_loses_its_agents_by_their_leases(pool: Pool, stock: Stock, probe: ProbeLog) -> None:
    process = await stock.start("nap")
    again, once = await pool.spawn("nap", {"seconds": 1.5}, retries=1), await pool.spawn("nap", {"seconds": 1.5})
    await running(once)
    process.kill()
    await process.wait()
    await stock.start("nap")
    assert (await once.wait(15)).error_kind is ErrorKind.WORKER_LOST
    assert (await again.wait(20)).status is Status.COMPLETED
    assert probe.starts_of(again.id) == 2


class NoSwitch:
    """Stands in for the dead-man's switch: this process is not one that may be ended, and its alarm belongs to pytest."""

    def arm(self, deadline: float) -> None:
        del deadline

    def disarm(self) -> None:
        pass


async def test_a_delivery_is_settled_however_often_its_job_is_cancelled(
    pool: Pool, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From Python 3.12 on, arq's second cancellation comes through to the job function."""
    monkeypatch.setattr("subagents_worker.trust.DeadMansSwitch", NoSwitch)
    registry, begun = Registry(), asyncio.Event()

    @registry.agent("slow_to_go")
    async def slow_to_go() -> str:
        begun.set()
        until = time.monotonic() + 0.8
        while (left := until - time.monotonic()) > 0:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(left)
        return "out"

    del slow_to_go
    runtime = Runtime(redis_url, pool.name, registry, slots=1, grace=5)
    await runtime.start()
    try:
        handle = await pool.spawn("slow_to_go")
        token = await cast("Awaitable[str]", pool.gateway.redis.hget(f"{pool.prefix}agent:{handle.id}", "token"))
        delivery = asyncio.create_task(runtime.run_delivered(handle.id, token))
        await asyncio.wait_for(begun.wait(), 5)
        for _ in range(3):
            delivery.cancel()
            await asyncio.wait({delivery}, timeout=0.05)
        with pytest.raises(asyncio.CancelledError):
            await delivery
        record = await handle.get()
        assert (record.status, record.result) == (Status.COMPLETED, "out")
    finally:
        await runtime.stop()
    await assert_quiet(pool)


# Faults of the server ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["restart", "kill -9"])
async def test_workers_outlive_a_restart_of_the_server(own_server: EmbeddedServer, tmp_path: Path, how: str) -> None:
    """One worker idle, one busy; everything spawned before the restart settles once, as if nothing had happened."""
    async with fleet(own_server.url, tmp_path, limit=20, lease=9) as (pool, workers, probe):
        busy = await workers.start(slots=8)
        await pool.set_max_concurrent(6)
        handles = [await pool.spawn("nap", {"seconds": 1.5}) for _ in range(4)]
        handles += [await pool.spawn("nap", {"seconds": 0.05}) for _ in range(60)]
        await eventually(lambda: len(probe.started()) >= 6, "it is busy")
        children = busy.children()
        if how == "restart":
            await asyncio.to_thread(own_server.restart)
        else:
            await asyncio.to_thread(own_server.kill)
        assert await all_settled(handles) == {Status.COMPLETED: 64}
        assert await pool.wait_idle(timeout=10)
        await asyncio.to_thread(own_server.restart)  # now it is idle
        assert await asyncio.wait_for(pool.run("echo", {"value": 1}), 20)
        assert busy.children() == children, "no process has ended"
        assert busy.process.returncode is None
        assert Counter(probe.started()).most_common(1)[0][1] == 1, "each ran once"
        events = await history(pool)
        assert_settled_once(events)
        assert_hard_cap(events)


async def test_an_outage_longer_than_the_trust_window_ends_what_runs_and_nothing_else(own_server: EmbeddedServer, tmp_path: Path) -> None:
    async with fleet(own_server.url, tmp_path, limit=2, lease=2) as (pool, workers, probe):
        worker = await workers.start()
        again, once = await pool.spawn("nap", {"seconds": 3}, retries=1), await pool.spawn("nap", {"seconds": 3})
        later = [await pool.spawn("echo") for _ in range(5)]
        await running(once)
        [child] = worker.children()
        await asyncio.to_thread(own_server.kill, restart=False)
        await eventually(lambda: child not in worker.children(), "the process ended itself, before its leases were void")
        await asyncio.to_thread(own_server.restart)
        assert (await once.wait(20)).error_kind is ErrorKind.WORKER_LOST
        assert await all_settled([again, *later]) == {Status.COMPLETED: 6}
        assert probe.peak() <= 2
        assert worker.process.returncode is None
        assert_settled_once(await history(pool))


@pytest.mark.parametrize("harm", ["SCRIPT FLUSH", "CLIENT KILL normal", "CLIENT KILL pubsub"])
async def test_harm_under_load_is_nobodys_failure(own_server: EmbeddedServer, tmp_path: Path, harm: str) -> None:
    """No call fails for the user, no agent is lost or run twice."""
    async with fleet(own_server.url, tmp_path, limit=10, lease=6) as (pool, workers, probe):
        await workers.start(processes=2)
        done = asyncio.Event()

        async def harming() -> int:
            count = 0
            async with Redis.from_url(own_server.url) as redis:  # pyright: ignore[reportUnknownMemberType]
                while not done.is_set():
                    if harm == "SCRIPT FLUSH":
                        await cast("Awaitable[object]", redis.script_flush())
                    else:
                        await redis.client_kill_filter(_type=harm.rpartition(" ")[2], skipme=True)
                    count += 1
                    with suppress(TimeoutError):
                        async with asyncio.timeout(0.1):
                            await done.wait()
            return count

        storm = asyncio.create_task(harming())
        records = [await pool.run("nap", {"seconds": 0.01}) for _ in range(10)]
        handles = [await pool.spawn("nap", {"seconds": 0.02}) for _ in range(150)]
        counts = await all_settled(handles)
        done.set()
        assert await storm > 3
        assert {record.status for record in records} == {Status.COMPLETED}
        assert counts == {Status.COMPLETED: 150}
        assert Counter(probe.started()).most_common(1)[0][1] == 1
        assert probe.peak() <= 10
        assert_settled_once(await history(pool))


# Slots -------------------------------------------------------------------------------------------------------------


@quiet
async def test_one_process_runs_500_at_once_while_150_run_elsewhere(pool: Pool, workers: Workers, probe: ProbeLog) -> None:
    """arq reads 100 ids from the head of its queue, where running jobs stay: neither may hide work here (B7)."""
    await pool.set_max_concurrent(150)
    await workers.start(slots=150)
    elsewhere = [await pool.spawn("nap", {"seconds": 60}) for _ in range(150)]
    await eventually(lambda: len(probe.started()) == 150, "150 run elsewhere", 30)
    big = await workers.start(slots=500)
    await pool.set_max_concurrent(650)
    handles = [await pool.spawn("nap", {"seconds": 60}) for _ in range(510)]
    await eventually(lambda: len(probe.started()) == 650, "500 run in one process", 30)
    [child] = big.children()
    assert Counter(mark.process for mark in probe.marks("begin"))[child] == 500
    assert (await pool.stats()).queued == 10
    report = await pool.interrupt(wait=20)
    assert (report.complete, len(report.agents)) == (True, 650)
    assert await all_settled([*elsewhere, *handles]) == {Status.STOPPED: 660}
    assert_hard_cap(await history(pool))


# Processes ---------------------------------------------------------------------------------------------------------


@quiet
async def test_a_killed_child_is_reported_at_once_and_replaced(pool: Pool, workers: Workers, probe: ProbeLog) -> None:
    worker = await workers.start(slots=4)
    held = [await pool.spawn("nap", {"seconds": 60}) for _ in range(4)]
    await eventually(lambda: len(probe.started()) == 4, "four run")
    helper = await workers.start(slots=4)
    queued = [await pool.spawn("nap", {"seconds": 60}) for _ in range(4)]
    [child] = worker.children()
    killed = time.monotonic()
    os.kill(child, signal.SIGKILL)
    await eventually(lambda: len(probe.started()) == 8, "the next four run")
    assert probe.marks("begin")[-1].at - killed < 1, "the permits were back within a second"
    assert {(await handle.wait(5)).error_kind for handle in held} == {ErrorKind.WORKER_LOST}
    [replacement] = await eventually(worker.children, "the process is replaced")
    assert replacement != child
    await eventually(lambda: _workers(pool, 2), "its replacement joined")
    assert helper.children()
    await pool.interrupt()
    assert await all_settled(queued) == {Status.STOPPED: 4}


async def _workers(pool: Pool, count: int) -> bool:
    return (await pool.stats()).workers == count


@quiet
async def test_children_of_a_killed_supervisor_drain_and_end(pool: Pool, workers: Workers) -> None:
    worker = await workers.start(processes=2, slots=2, drain_timeout=20)
    handles = [await pool.spawn("nap", {"seconds": 1.5}) for _ in range(4)]
    for handle in handles:
        await running(handle)
    children = worker.children()
    worker.process.kill()
    await worker.gone()
    assert await all_settled(handles) == {Status.COMPLETED: 4}
    await eventually(lambda: not any(_alive(pid) for pid in children), "no orphan is left", 10)
    assert (await pool.stats()).workers == 0


def _alive(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@quiet
async def test_a_run_that_lost_its_lease_is_cut_off_and_writes_nothing(pool: Pool, workers: Workers, probe: ProbeLog) -> None:
    await workers.start(agents=ODD)
    handle = await pool.spawn("chatter", {"seconds": 60})
    await running(handle)
    bystander = await pool.spawn("nap", {"seconds": 1.5})
    await running(bystander)
    key = f"{pool.prefix}agent:{handle.id}"
    await cast("Awaitable[int]", pool.gateway.redis.hset(key, "token", "somebody-elses"))
    await eventually(lambda: probe.marks("end"), "its code is out")
    assert [mark.agent_id for mark in probe.marks("end")] == [handle.id]
    said = await pool.gateway.redis.xlen(f"{pool.prefix}events:{handle.id}")
    assert (await bystander.wait(10)).status is Status.COMPLETED
    assert await pool.gateway.redis.xlen(f"{pool.prefix}events:{handle.id}") == said
    record = await handle.get()
    assert (record.status, record.result) == (Status.RUNNING, None), "the new owner's record is untouched"
    assert (await handle.wait(10)).error_kind is ErrorKind.WORKER_LOST, "nobody renews it"


@quiet
@pytest.mark.parametrize("slots", [1, 2, 10], ids=lambda slots: f"{slots} slots")
async def test_a_blocked_loop_keeps_its_lease(pool: Pool, workers: Workers, probe: ProbeLog, slots: int) -> None:
    """The lease is 3 s; the loop is blocked for 6: the lifeline renews from a thread.

    With a slot free, the worker's next claim is under way when the loop is blocked; its answer, and the agents that it brings, are read
    only afterwards. That costs neither the process its life nor those agents their leases.
    """
    worker = await workers.start(agents=ODD, slots=slots)
    children = worker.children()
    blocking = await pool.spawn("block", {"seconds": 6})
    await eventually(lambda: probe.started() == [blocking.id], "it blocks the loop")
    behind = [await pool.spawn("nap", {"seconds": 0.1}) for _ in range(2)]
    assert await all_settled([blocking, *behind]) == {Status.COMPLETED: 3}
    assert sorted(probe.started()) == sorted([blocking.id, *(handle.id for handle in behind)]), "each ran once"
    assert worker.children() == children
    assert not await history(pool, "lost", "redispatched")


async def test_a_claim_whose_answer_is_read_late_keeps_its_agents(pool: Pool, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool gives a worker an agent while its loop is blocked for longer than the lease: that agent runs afterwards, once."""
    monkeypatch.setattr("subagents_worker.trust.DeadMansSwitch", NoSwitch)
    registry, ran = Registry(), list[int]()

    @registry.agent("patient")
    async def patient(ctx: AgentContext) -> str:
        ran.append(ctx.attempt)
        return "ran"

    del patient
    runtime = Runtime(redis_url, pool.name, registry, slots=1, grace=5)
    await runtime.start()
    try:
        assert await runtime.claim(1) == 0  # from here on the server knows the script
        handle = await pool.spawn("patient")
        evalsha, blocked = runtime.pool.gateway.redis.evalsha, list[object]()

        async def blocks(sha: str, *args: Any) -> Any:
            answer = await cast("Awaitable[object]", evalsha(sha, *args))
            if sha == load("claim").sha and not blocked:
                blocked.append(answer)
                time.sleep(4.5)  # noqa: ASYNC251 agent code that blocks the loop
            return answer

        monkeypatch.setattr(runtime.pool.gateway.redis, "evalsha", blocks)
        assert await runtime.claim(1) == 1
        assert await handle.result(10) == "ran"
        assert (ran, len(blocked)) == ([1], 1)
        assert not await history(pool, "lost", "redispatched", "error")
    finally:
        await runtime.stop()
    await assert_quiet(pool)
