"""The rights of the Redis user: with those of `deploy/redis.acl` everything works, and with one of them less nothing is half done."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from redis.asyncio import Redis

from subagents import AbortAnswer, PermissionDenied, Pool, PoolNotFound, Semaphore, SpawnRequest, Status
from subagents.embedded import EmbeddedServer, server
from subagents.scripts import loader
from support.probe import ProbeLog
from support.scenes import STOP_AGENTS, until_begun
from support.workers import Workers

RIGHTS = Path(__file__).parents[2] / "deploy" / "redis.acl"
OPTIONAL = {"info", "config|get"}
OF_CONNECTION = {"select"}


def granted() -> list[str]:
    """The commands that the file grants."""
    return re.findall(r" \+([a-z|]+)", RIGHTS.read_text())


def needed() -> list[str]:
    """Those of them that a pool cannot do without."""
    return [command for command in granted() if command not in OPTIONAL | OF_CONNECTION]


@pytest.fixture(scope="module")
def guarded() -> Iterator[EmbeddedServer]:
    """A server that was set up with the file as it is delivered."""
    with server(port=0, extra=["--include", str(RIGHTS)]) as started:
        yield started


@pytest.fixture
async def admin(guarded: EmbeddedServer) -> AsyncIterator[Any]:
    async with Redis.from_url(guarded.url, decode_responses=True) as redis:  # pyright: ignore[reportUnknownMemberType]
        rules = RIGHTS.read_text().splitlines()[-1].split()[2:]
        await redis.execute_command("ACL SETUSER", "subagents", "reset", *rules)
        await redis.execute_command("ACL LOG", "RESET")
        await redis.flushall()
        yield redis


@pytest.fixture
def user_url(guarded: EmbeddedServer) -> str:
    return guarded.url.replace("redis://", "redis://subagents:CHANGE-ME@")


def test_every_command_of_the_scripts_is_proven_and_granted() -> None:
    sources = {name: loader.load(name).source for name in loader.names()}
    called = {command for source in sources.values() for command in re.findall(r"call\('([A-Z]+)'", source)}
    literals = re.findall(r"'([^']*)'", re.sub(r"--.*", "", sources["prove"]))
    proven = {word for literal in literals for word in re.findall(r"\b[A-Z]{3,}\b", literal)} - {"STREAMS"}
    assert called <= proven
    beside = {"BLPOP", "EVAL", "EVALSHA", "PING", "PUBLISH", "SUBSCRIBE", "XREAD", "XREVRANGE"}
    assert proven - called <= beside | {"HGET"}
    assert {command.lower() for command in proven} == set(needed())


async def test_a_user_with_just_these_rights_runs_everything(admin: Any, user_url: str, tmp_path: Path, probe: ProbeLog) -> None:
    async with Pool(user_url, name="guarded", max_concurrent=2, lease=2, max_bypass=1) as pool:
        workers = Workers(pool, user_url, tmp_path, probe.path)
        try:
            await workers.start(agents=STOP_AGENTS)
            assert await (await pool.spawn("echo", {"value": 1}, key="k", scopes=["s"])).result(10) == 1
            assert (await pool.run("parent", {"seconds": 0.01})).status is Status.COMPLETED
            assert (await pool.run("echo", bypass_queue=True)).status is Status.COMPLETED
            talk = await pool.spawn("talk", {"lines": 2})
            assert [event.kind async for event in talk.events()] == ["progress", "progress", "completed"]
            handles = await pool.spawn_many([SpawnRequest(type="nap", input={"seconds": 60}, scopes=("s",))] * 4)
            await until_begun(probe, handles[:2])
            assert await handles[0].abort() is AbortAnswer.STOPPING
            assert (await pool.interrupt("s")).complete
            await pool.pause()
            await pool.set_max_concurrent(3)
            await pool.unpause()
            assert (await pool.halt()).complete
            await pool.unhalt()
            assert await pool.wait_idle(timeout=10)
            assert len((await pool.list(scope="s")).records) == 5
            assert await pool.purge(0) >= 5
            assert [event.kind async for event in pool.events("0", follow=False)]
            await pool.stats()
        finally:
            await workers.stop()
    async with Semaphore(user_url, name="guarded", max_concurrent=1) as semaphore, semaphore.permit():
        assert (await semaphore.statistics()).held == 1
    refused = await admin.execute_command("ACL LOG")
    assert not [entry for entry in refused if entry["object"] != "client|setinfo"], "something asked for a right that is not granted"


async def test_a_right_that_is_missing_is_named_and_nothing_is_done(admin: Any, user_url: str) -> None:
    for command in needed():
        await admin.execute_command("ACL SETUSER", "subagents", f"-{command}")
        with pytest.raises(PermissionDenied) as refused:
            async with Pool(user_url, name="guarded"):
                pass
        line = str(refused.value)
        assert "\n" not in line
        assert command.upper() in line.upper()
        assert "CHANGE-ME" not in line
        assert await admin.dbsize() == 0, f"something was written without the right to {command}"
        await admin.execute_command("ACL SETUSER", "subagents", f"+{command}")
    async with Pool(user_url, name="guarded") as pool:
        assert (await pool.stats()).max_concurrent == 4


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        (["resetkeys", "~arq:*"], "sa:{guarded}:"),
        (["resetkeys", "~sa:*"], "arq:queue:{guarded}:"),
        (["resetkeys", "~sa:*", "%R~arq:*"], "arq:queue:{guarded}:"),
        (["resetchannels"], "channels"),
        (["resetchannels", "&sa:*:control"], "channels"),
        (["resetkeys", "~sa:{another}:*", "~arq:*"], "sa:{guarded}:"),
    ],
    ids=["no pool keys", "no arq keys", "read only arq keys", "no channels", "one channel", "another pool"],
)
async def test_keys_and_channels_that_are_out_of_reach_are_named_and_nothing_is_done(
    admin: Any, user_url: str, rules: list[str], said: str
) -> None:
    await admin.execute_command("ACL SETUSER", "subagents", *rules)
    with pytest.raises(PermissionDenied, match=re.escape(said)):
        async with Pool(user_url, name="guarded"):
            pass
    assert await admin.dbsize() == 0


async def test_a_user_for_one_pool_reaches_that_pool_only(admin: Any, user_url: str) -> None:
    await admin.execute_command(
        *("ACL SETUSER", "subagents", "resetkeys", "~sa:{mine}:*", "~arq:*{mine}*", "resetchannels", "&sa:{mine}:*")
    )
    async with Pool(user_url, name="mine") as pool:
        await pool.spawn("echo")
        assert (await pool.interrupt()).queued_stopped == 1
    with pytest.raises(PermissionDenied):
        async with Pool(user_url, name="theirs"):
            pass


async def test_a_pool_that_was_opened_by_others_is_not_half_changed_either(admin: Any, guarded: EmbeddedServer, user_url: str) -> None:
    """No `open` on this path: a client that only calls is checked all the same, before its first call."""
    async with Pool(guarded.url, name="guarded") as pool:
        handle = await pool.spawn("echo")
        before = await _dump(admin)
        await admin.execute_command("ACL SETUSER", "subagents", "-publish")
        lacking = Pool(user_url, name="guarded")
        calls: list[Awaitable[object]] = [
            lacking.spawn("echo"),
            lacking.interrupt(),
            lacking.halt(),
            lacking.abort(handle.id),
            lacking.set_max_concurrent(1),
            lacking.stats(),
        ]
        for call in calls:
            with pytest.raises(PermissionDenied, match="PUBLISH"):
                await call
        await lacking.close()
        assert await _dump(admin) == before
        await admin.execute_command("ACL SETUSER", "subagents", "+publish")
        missing = Pool(user_url, name="nowhere")
        with pytest.raises(PoolNotFound):
            await missing.stats()
        await missing.close()


async def _dump(admin: Any) -> dict[str, object]:
    contents: dict[str, object] = {}
    for key in sorted(cast("list[str]", await admin.keys("*"))):
        match await admin.type(key):
            case "hash":
                contents[key] = await admin.hgetall(key)
            case "zset":
                contents[key] = await admin.zrange(key, 0, -1, withscores=True)
            case "stream":
                contents[key] = await admin.xlen(key)
            case "string":
                contents[key] = await admin.get(key)
            case kind:
                contents[key] = kind
    return contents


@pytest.mark.parametrize("lacks", ["-zpopmin", "-blpop", "resetchannels", "off"])
async def test_a_worker_that_lacks_a_right_says_so_in_one_line_and_ends(
    admin: Any, guarded: EmbeddedServer, user_url: str, lacks: str
) -> None:
    async with Pool(guarded.url, name="guarded") as pool:
        handle = await pool.spawn("echo")
        await admin.execute_command("ACL SETUSER", "subagents", lacks)
        worker = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "subagents_worker", STOP_AGENTS),
            env={**os.environ, "SUBAGENTS_REDIS_URL": user_url, "SUBAGENTS_POOL": "guarded"},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            _, said = await asyncio.wait_for(worker.communicate(), 20)
        finally:
            if worker.returncode is None:
                worker.kill()
                await worker.wait()
        lines = said.decode().strip().splitlines()
        assert (worker.returncode, len(lines)) == (3, 1), said.decode()
        assert lines[0].startswith("subagents worker: ")
        assert "CHANGE-ME" not in lines[0]
        assert (await pool.stats()).workers == 0
        assert (await handle.get()).status is Status.QUEUED


@pytest.mark.parametrize("how", ["wrong password", "unknown user", "switched off"])
async def test_a_refused_login_is_one_clear_line_at_once(admin: Any, user_url: str, how: str) -> None:
    if how == "switched off":
        await admin.execute_command("ACL SETUSER", "subagents", "off")
    urls = {"wrong password": user_url.replace("CHANGE-ME", "guess"), "unknown user": user_url.replace("subagents:", "nobody:")}
    url = urls.get(how, user_url)
    with pytest.raises(PermissionDenied, match="refused the login") as refused:
        async with asyncio.timeout(5), Pool(url, name="guarded"):
            pass
    assert not {"CHANGE-ME", "guess"} & set(re.split(r"\W+", str(refused.value)))
