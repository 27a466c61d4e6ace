"""The thinnest thread through all layers: spawn, run, settle, interrupt."""

from __future__ import annotations

import pytest

from subagents import Pool, Status
from support.probe import ProbeLog
from support.waiting import eventually
from support.workers import Workers


@pytest.mark.usefixtures("quiet")
async def test_an_agent_runs_and_its_result_comes_back(pool: Pool, workers: Workers, probe: ProbeLog) -> None:
    await workers.start()
    record = await pool.run("echo", {"value": {"deep": [1, 2, None]}})
    assert record.status is Status.COMPLETED
    assert record.result == {"deep": [1, 2, None]}
    assert probe.started() == [record.id]


@pytest.mark.usefixtures("quiet")
async def test_an_interrupt_stops_running_and_queued(pool: Pool, workers: Workers) -> None:
    await workers.start(processes=2)
    handles = [await pool.spawn("nap", {"seconds": 60}) for _ in range(10)]
    await eventually(lambda: _running(pool, 4), "four run")
    report = await pool.interrupt(reason="test")
    assert report.complete
    assert (report.queued_stopped, len(report.agents)) == (6, 4)
    assert {(await handle.wait(5)).status for handle in handles} == {Status.STOPPED}


async def _running(pool: Pool, count: int) -> bool:
    return len(await pool.list(status="running")) == count
