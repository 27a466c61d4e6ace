"""G1 to G3, and the bounds of L9: live settings are in Redis, with who and when; what is out of range is refused at the door."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable
from decimal import Decimal
from typing import Any, cast

import pytest

from subagents import InvalidArgument, Pool, Status
from subagents.keys import new_id
from subagents.scripts import calls
from support.history import history
from support.manual_worker import ManualWorker
from support.probe import ProbeLog
from support.scenes import until_begun
from support.workers import Workers

LEASE = 3.0
NO_NUMBERS: list[Any] = [True, False, "5", "", "text", None, [5], math.nan]
NO_WHOLE_NUMBERS: list[Any] = [*NO_NUMBERS, 2.5, 4.0, math.inf, Decimal(4)]


async def config(pool: Pool) -> dict[str, str]:
    return await cast("Awaitable[dict[str, str]]", pool.gateway.redis.hgetall(f"{pool.prefix}config"))


async def keys_of(pool: Pool, name: str) -> list[str]:
    found = cast("AsyncIterator[str]", pool.gateway.redis.scan_iter(match=f"sa:{{{name}}}:*"))
    return [key async for key in found]


async def test_G1_a_live_setting_is_versioned_with_who_and_when(pool: Pool, redis_url: str) -> None:
    made = await config(pool)
    assert (made["version"], made["changed_by"]) == ("1", "test")
    before, seen = made, [int(made["changed_at"])]
    async with Pool(redis_url, name=pool.name, by="operator") as operator:
        changes: list[tuple[str, str, Awaitable[object]]] = [
            ("max_concurrent", "7", operator.set_max_concurrent(7)),
            ("paused", "1", operator.pause()),
            ("halted", "1", operator.halt(wait=0)),
            ("halted", "0", operator.unhalt()),
            ("paused", "0", operator.unpause()),
        ]
        for number, (name, value, change) in enumerate(changes, start=2):
            await change
            after = await config(pool)
            assert (after[name], after["version"], after["changed_by"]) == (value, str(number), "operator")
            assert {field for field in after if after[field] != before.get(field)} <= {
                *(name, "version", "changed_by", "changed_at", "halted_by", "halt_reason")
            }
            seen.append(int(after["changed_at"]))
            before = after
        await operator.unpause()
        await operator.unhalt()
    assert seen == sorted(seen)
    assert abs(seen[-1] / 1000 - time.time()) < 60
    assert (await config(pool))["version"] == "6", "a call that changed nothing counts as no change"
    told = await history(pool, "limit", "paused", "halted", "unhalted", "unpaused")
    assert [event.facts["by"] for event in told] == ["operator"] * 5


async def test_G1_every_heartbeat_tells_the_version(pool: Pool) -> None:
    worker = ManualWorker(pool)
    await worker.join()
    assert (await worker.renew()).version == 1
    await pool.set_max_concurrent(9)
    assert (await worker.renew()).version == 2
    await worker.leave()


@pytest.mark.usefixtures("quiet")
async def test_G1_every_process_follows_although_the_message_is_lost(pool: Pool, workers: Workers, probe: ProbeLog, redis_url: str) -> None:
    await workers.start(processes=2)
    await pool.set_max_concurrent(0)
    handles = [await pool.spawn("nap", {"seconds": 60}) for _ in range(6)]
    async with Pool(redis_url, name=pool.name) as other:
        await other.wait_idle(timeout=0.1)
        await pool.gateway.redis.client_kill_filter(_type="pubsub")
        began = time.monotonic()
        await pool.set_max_concurrent(3)
        await pool.gateway.redis.delete(f"{pool.prefix}wake:nap")
        assert (await other.stats()).max_concurrent == 3
        await until_begun(probe, handles[:3])
        print(f"three run {time.monotonic() - began:.2f} s after the change, with every message of it lost")
        assert time.monotonic() - began < 2 + LEASE / 8 + 1  # an idle worker blocks for two seconds at most
        await pool.set_max_concurrent(1)
        await handles[0].abort()
        await handles[0].wait(10)
        assert (await other.stats()).active == 2
        assert (await handles[3].wait(timeout=0.3)).status is Status.QUEUED
    await pool.interrupt()


@pytest.mark.parametrize("odd", [*(value for value in NO_WHOLE_NUMBERS), -1, 1_000_001, 10**12, 1e12, -(10**30)], ids=repr)
async def test_G2_L9_a_limit_out_of_range_is_refused_and_the_old_one_stands(pool: Pool, odd: Any) -> None:
    before, told = await config(pool), len(await history(pool))
    with pytest.raises(InvalidArgument, match=r"max_concurrent must be an integer from 0 to 1 000 000, not "):
        await pool.set_max_concurrent(odd)
    assert await config(pool) == before
    assert len(await history(pool)) == told


@pytest.mark.parametrize("edge", [0, 1, 999_999, 1_000_000])
async def test_G2_L9_a_limit_at_its_bounds_is_taken_as_it_is(pool: Pool, edge: int) -> None:
    assert await pool.set_max_concurrent(edge) == 4
    assert (await pool.stats()).max_concurrent == edge


@pytest.mark.parametrize("odd", ["-1", "1000001", "2.5", "nan", "inf", "1e12", "", "text", "0x10x"])
async def test_G2_the_script_refuses_what_a_client_of_another_make_may_send(pool: Pool, odd: str) -> None:
    before = await config(pool)
    for name in ("set_limit", "permit_limit"):
        call = calls.Call(name, pool.prefix, (new_id(), odd, "test"), lambda reply: reply.code)
        assert await pool.gateway(call) == "out_of_bounds"
    assert await config(pool) == before


ARGUMENTS: list[tuple[str, list[Any]]] = [
    ("max_concurrent", [*(value for value in NO_WHOLE_NUMBERS if value is not None), -1, 1_000_001]),
    ("max_depth", [*(value for value in NO_WHOLE_NUMBERS if value is not None), -1, 65]),
    ("max_bypass", [*(value for value in NO_WHOLE_NUMBERS if value is not None), -1, 1001]),
    ("lease", [*(value for value in NO_NUMBERS if value is not None), 0, -1, 0.99, 3600.1, math.inf, Decimal(15)]),
    ("patience", [*NO_NUMBERS, -1, math.inf]),
    ("name", ["", " ", "a b", "a{b}", "x" * 65, "ä", 5, None, True]),
]


@pytest.mark.parametrize(("argument", "odd"), [(name, odd) for name, values in ARGUMENTS for odd in values], ids=repr)
async def test_G2_an_argument_of_a_pool_out_of_range_is_refused(pool: Pool, redis_url: str, argument: str, odd: Any) -> None:
    given: dict[str, Any] = {"name": f"{pool.name}-odd", argument: odd}
    expected = "pool name" if argument == "name" else argument
    with pytest.raises(InvalidArgument, match=f"^{expected} "):
        Pool(redis_url, **given)
    assert await keys_of(pool, f"{pool.name}-odd") == []


CALLED = {"type": "(agent )?type", "scopes": "scope"}
"""What a refusal calls an option, where that is not its own name."""


def shown(value: object) -> str:
    return repr(value)[:40]


SPAWN_OPTIONS: list[tuple[str, list[Any]]] = [
    ("timeout", [True, "5", math.nan, math.inf, 0, -1, 30 * 86400 + 1]),
    ("stall_timeout", [True, "5", math.nan, math.inf, 0, -1, 30 * 86400 + 1]),
    ("retries", [True, "3", 2.0, 2.5, math.nan, -1, 101]),
    ("bypass_queue", ["yes", 1, 0, "false", 2]),
    ("on_interrupt", ["", "Stop", None, True]),
    ("scopes", ["text", ["*"], ["@up"], ["a b"], ["a,b"], [""], ["x" * 129], [5], [f"s{n}" for n in range(17)]]),
    ("key", ["", "a b", "x" * 257, "ä", 5]),
    ("description", ["x" * 501, 5]),
    ("type", ["", "a b", "x" * 65, 5, None]),
]


@pytest.mark.parametrize(("option", "odd"), [(name, odd) for name, values in SPAWN_OPTIONS for odd in values], ids=shown)
async def test_G2_a_spawn_option_out_of_range_is_refused_and_nothing_is_spawned(pool: Pool, option: str, odd: Any) -> None:
    given: dict[str, Any] = {"type": "echo", option: odd}
    with pytest.raises(InvalidArgument, match=f"^{CALLED.get(option, option)}"):
        await pool.spawn(**given)
    assert (await pool.list()).records == ()


@pytest.mark.parametrize("odd", [True, "5", math.nan, -1, 3601], ids=repr)
async def test_G2_the_time_that_an_interrupt_may_wait_is_bounded_and_nothing_is_interrupted(pool: Pool, odd: Any) -> None:
    for call in (pool.interrupt(wait=odd), pool.halt(wait=odd)):
        with pytest.raises(InvalidArgument, match=r"^wait must be a number of seconds from 0 to 3600"):
            await call
    assert await history(pool) == []
    assert not (await pool.stats()).halted


@pytest.mark.parametrize("odd", [True, "5", math.nan], ids=repr)
async def test_G2_a_timeout_that_is_no_number_is_refused(pool: Pool, odd: Any) -> None:
    handle = await pool.spawn("echo")
    for call in (handle.wait(odd), handle.result(odd), pool.wait_idle(timeout=odd)):
        with pytest.raises(InvalidArgument, match=r"^timeout must be a number of seconds"):
            await asyncio.wait_for(call, 5)
    await pool.interrupt()


async def test_G3_two_clients_that_start_with_different_limits_do_not_fight(redis_url: str, pool_name: str) -> None:
    async with Pool(redis_url, name=pool_name, max_concurrent=7, lease=4) as first:
        async with Pool(redis_url, name=pool_name, max_concurrent=3, lease=30, max_depth=1, max_bypass=9) as second:
            stored = await config(first)
            assert (stored["max_concurrent"], stored["lease"], stored["max_depth"], stored["max_bypass"]) == ("7", "4000", "3", "0")
            assert (await second.stats()).max_concurrent == 7
            await second.set_max_concurrent(5)
        async with Pool(redis_url, name=pool_name, max_concurrent=7) as third:
            assert (await third.stats()).max_concurrent == 5
        assert (await first.stats()).max_concurrent == 5
        assert [event.max_concurrent for event in await history(first, "limit")] == [5]


async def test_G3_of_many_that_start_at_once_one_makes_the_pool(redis_url: str, pool_name: str) -> None:
    pools = [Pool(redis_url, name=pool_name, max_concurrent=limit, by=f"client-{limit}") for limit in range(1, 17)]
    await asyncio.gather(*(pool.open() for pool in pools))
    limits = {(await pool.stats()).max_concurrent for pool in pools}
    assert len(limits) == 1
    stored = await config(pools[0])
    assert (stored["changed_by"], stored["version"]) == (f"client-{limits.pop()}", "1")
    for pool in pools:
        await pool.close()
