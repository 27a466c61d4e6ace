"""Nesting under the tightest limits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import cast

import pytest

from subagents import Pool
from support.probe import ProbeLog
from support.workers import Workers


@pytest.mark.usefixtures("quiet")
async def test_case_F1_nesting_in_a_chain(pool: Pool, workers: Workers, probe: ProbeLog) -> None:
    await pool.set_max_concurrent(1)
    await cast("Awaitable[int]", pool.gateway.redis.hset(f"{pool.prefix}config", "max_depth", "5"))
    await workers.start(slots=1)
    handle = await pool.spawn("chain", {"depth": 5})
    assert await handle.result(timeout=20) == 5
    assert probe.peak() == 1


@pytest.mark.usefixtures("quiet")
async def test_case_F1_three_parents(pool: Pool, workers: Workers, probe: ProbeLog) -> None:
    await pool.set_max_concurrent(3)
    await workers.start(slots=3)
    parents = await asyncio.gather(*(pool.spawn("chain", {"depth": 1}) for _ in range(3)))
    assert [await parent.result(timeout=20) for parent in parents] == [1, 1, 1]
    assert probe.peak() <= 3
