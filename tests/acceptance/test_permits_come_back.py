"""Dead workers, contention, odd limits: faults that pools and limiters really had."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from subagents import ErrorKind, InvalidArgument, Pool, SpawnRequest, Status
from support.history import assert_first_admissions_in_order, assert_hard_cap, assert_settled_once, history
from support.probe import ProbeLog
from support.waiting import eventually
from support.workers import Workers

LEASE = 3.0
RUNS = int(os.environ.get("SUBAGENTS_TEST_RUNS", "3"))


async def _two_run_and_five_wait(pool: Pool, workers: Workers) -> tuple[list[str], list[str]]:
    """L=2: two long agents run on the worker that is there, five short ones wait behind them."""
    await pool.set_max_concurrent(2)
    long = [(await pool.spawn("nap", {"seconds": 60})).id for _ in range(2)]
    short = [(await pool.spawn("nap", {"seconds": 0})).id for _ in range(5)]

    async def both_run() -> bool:
        return len(await pool.list(status="running")) == 2

    await eventually(both_run, "the two long agents run")
    return long, short


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(("supervised", "within"), [(True, 1.0), (False, LEASE + 1.0)], ids=["its supervisor lives", "supervisor dead too"])
async def test_case_A1_dead_worker(pool: Pool, workers: Workers, probe: ProbeLog, supervised: bool, within: float) -> None:
    doomed = await workers.start()
    long, short = await _two_run_and_five_wait(pool, workers)
    await workers.start()
    killed = time.monotonic()
    if supervised:
        os.kill(doomed.children()[0], signal.SIGKILL)
    else:
        doomed.kill_everything()
    for agent_id in short:
        assert (await pool.handle(agent_id).wait(15)).status is Status.COMPLETED
    for agent_id in long:
        record = await pool.handle(agent_id).wait(5)
        assert (record.status, record.error_kind) == (Status.ERROR, ErrorKind.WORKER_LOST)
    first = next(mark.at for mark in probe.marks("begin") if mark.agent_id in short)
    print(f"first waiter started {first - killed:.2f} s after the kill")
    assert first - killed < within
    events = await history(pool)
    assert [event.agent_id for event in events if event.kind == "admitted"] == [*long, *short]
    assert_settled_once(events)


@pytest.mark.usefixtures("quiet")
async def test_case_A2_everyone_dead(pool: Pool, workers: Workers, probe: ProbeLog) -> None:
    doomed = await workers.start()
    _, short = await _two_run_and_five_wait(pool, workers)
    doomed.kill_everything()
    await doomed.gone()
    await asyncio.sleep(30)  # the silence is the test: nobody calls, so pool time stands still
    await workers.start(wait=False)
    began = time.monotonic()
    await eventually(lambda: set(short) <= set(probe.started()), "the waiting agents start", LEASE + 1 + 4)
    first = next(mark.at for mark in probe.marks("begin") if mark.agent_id in short)
    joined = min(mark.at for mark in probe.marks("begin") if mark.process != probe.marks("begin")[0].process)
    print(f"first waiter started {first - began:.2f} s after the new worker was launched, {first - joined:.2f} s after its first run")
    await pool.wait_idle(timeout=10)
    assert_first_admissions_in_order(await history(pool))


@contextmanager
def busy_cpus() -> Generator[None]:
    """Both CPUs have something else to do, for as long as this process lives."""
    burn = f"import os\nwhile os.getppid() == {os.getpid()}: sum(range(10_000))"
    burners = [subprocess.Popen([sys.executable, "-c", burn]) for _ in range(2)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("quiet")
async def test_case_A5_contention(pool: Pool, workers: Workers, probe: ProbeLog) -> None:
    await pool.set_max_concurrent(5)
    await workers.start(processes=4, slots=20)
    with busy_cpus():
        for run in range(RUNS):
            probe.path.unlink(missing_ok=True)
            began = time.monotonic()
            await pool.spawn_many([SpawnRequest(type="nap", input={"seconds": 0.005}) for _ in range(2000)])
            assert await pool.wait_idle(timeout=120)
            peak, longest = probe.peak(), _longest_below(probe, 5)
            print(f"run {run + 1}: peak {peak}, below 5 for at most {longest * 1000:.0f} ms, {time.monotonic() - began:.1f} s")
            assert len(probe.started()) == len(set(probe.started())) == 2000
            assert peak == 5
    assert_hard_cap(await history(pool))


def _longest_below(probe: ProbeLog, limit: int) -> float:
    """The longest time for which fewer than `limit` agents ran while others were still to start."""
    marks = probe.marks()
    last_start = max(mark.at for mark in marks if mark.word == "begin")
    running, since, longest = 0, marks[0].at, 0.0
    for mark in marks:
        if mark.at > last_start:
            break
        if running < limit:
            longest = max(longest, mark.at - since)
        running += 1 if mark.word == "begin" else -1
        since = mark.at
    return longest


ODD = [-1, 2.5, math.nan, 1e12, 1_000_001, "5", True, None, math.inf]


@pytest.mark.usefixtures("quiet")
async def test_case_A13_odd_limits_by_python(pool: Pool, workers: Workers, redis_url: str) -> None:
    for odd in ODD:
        with pytest.raises(InvalidArgument, match="from 0 to 1 000 000"):
            await pool.set_max_concurrent(odd)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        assert (await pool.stats()).max_concurrent == 4
        if odd is not None:
            with pytest.raises(InvalidArgument, match="from 0 to 1 000 000"):
                Pool(redis_url, name="odd", max_concurrent=odd)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    await workers.start()
    assert await pool.set_max_concurrent(0) == 4
    handle = await pool.spawn("echo", {"value": 1})
    record = await handle.wait(timeout=0.3)
    assert (record.status, record.waiting_reason) == (Status.QUEUED, "limit")
    assert await pool.set_max_concurrent(1_000_000) == 0
    assert (await handle.wait(10)).status is Status.COMPLETED
