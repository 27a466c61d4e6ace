"""`spawn`, `wait` and `tail`: an agent from the command line to its end, and Ctrl-C on the way."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from subagents import AgentHandle, Pool, Status
from support.command_line import (
    CommandLine,
    spawned_by_command,
    watched_by_another,
)
from support.waiting import eventually
from support.workers import Workers


@pytest.fixture
async def subagents(redis_url: str, pool_name: str) -> AsyncIterator[CommandLine]:
    async with CommandLine(redis_url, pool_name) as started:
        yield started


async def test_spawn_prints_the_id_and_says_that_no_worker_is_there(subagents: CommandLine, pool: Pool) -> None:
    ended = await subagents("spawn", "echo", '{"value": 1}', "--scope", "a", "--scope", "b", "--description", "a line", "--retries", "2")
    assert ended.code == 0
    record = await pool.get(ended.out.strip())
    assert (record.status, record.scopes, record.description) == (Status.QUEUED, ("a", "b"), "a line")
    assert "no worker serves 'echo'" in ended.err
    again, other = [await subagents("spawn", "echo", given, "--key", "k", "--json") for given in ("[1]", "[2]")]
    assert again.data["status"] == "queued"
    assert (other.code, json.loads(other.error_line)["error"]) == (2, "key_conflict")


async def test_spawn_and_wait_prints_the_result(subagents: CommandLine, pool: Pool, workers: Workers, tmp_path: Path) -> None:
    await workers.start()
    file = tmp_path / "input.json"
    file.write_text('{"value": {"from": "a file"}}')
    plain, from_file, as_json = await asyncio.gather(
        subagents("spawn", "echo", '{"value": "é [bold]"}', "--wait"),
        subagents("spawn", "echo", f"@{file}", "--wait", "--key", "from-a-file"),
        subagents("spawn", "echo", '{"value": [1, 2]}', "--wait", "--json"),
    )
    assert (plain.code, plain.data) == (0, "é [bold]")
    assert "completed" in plain.err
    assert (from_file.code, from_file.data) == (0, {"from": "a file"})
    assert (as_json.code, as_json.data["status"], as_json.data["result"], as_json.err) == (0, "completed", [1, 2], "")
    piped = await subagents.start("spawn", "echo", "-", "--wait")
    assert piped.process.stdin is not None
    piped.process.stdin.write(b'{"value": "piped"}')
    piped.process.stdin.close()
    assert (await piped.ended()).data == "piped"


async def test_a_failed_agent_fails_its_command_in_one_line(subagents: CommandLine, pool: Pool, workers: Workers) -> None:
    await workers.start()
    ended = await subagents("spawn", "fail", '{"text": "broken\\nin two \\u001b[31m"}', "--wait")
    assert ended.code == 1
    id, message = ended.err.splitlines()
    assert "RuntimeError: broken in two" in message
    assert "Traceback" not in message
    assert "\x1b" not in ended.err
    waited = await subagents("wait", id, "--json")
    assert (waited.code, waited.data["error_kind"], json.loads(waited.err)["error"]) == (1, "agent_error", "agent_failed")


async def test_P8_a_wait_that_times_out_exits_4_and_touches_nothing(subagents: CommandLine, pool: Pool) -> None:
    spawned = await subagents("spawn", "echo", "--wait-timeout", "0.1", "--json")
    assert (spawned.code, json.loads(spawned.err)["error"], spawned.data["status"]) == (4, "wait_timeout", "queued")
    waited = await subagents("wait", spawned.data["id"], "--timeout", "0.1")
    assert waited.code == 4
    assert "is still queued after 0.1 s" in waited.error_line
    assert (await pool.get(spawned.data["id"])).status is Status.QUEUED


async def test_ctrl_c_while_waiting_leaves_the_agent_alone(subagents: CommandLine, pool: Pool) -> None:
    handle = await pool.spawn("nap")
    waiting = await subagents.start("wait", handle.id)
    await watched_by_another(pool, handle)
    ended = await waiting.interrupted()
    assert ended.code == 130
    assert "goes on" in ended.error_line
    assert (await handle.get()).status is Status.QUEUED


@pytest.mark.parametrize("options", [[], ["--survive"]])
async def test_ctrl_c_in_spawn_and_wait_interrupts_its_own_scope_only(
    subagents: CommandLine, pool: Pool, workers: Workers, options: list[str]
) -> None:
    await workers.start()
    bystander = await pool.spawn("nap", {"seconds": 60}, scopes=["session"])
    command = await subagents.start("spawn", "nap", '{"seconds": 60}', "--scope", "session", "--wait", *options)
    own = await spawned_by_command(pool, Status.RUNNING)
    await watched_by_another(pool, own)
    ended = await command.interrupted()
    assert ended.code == 130
    assert "Traceback" not in ended.err
    assert re.search(r"Interrupt of scope cli-[0-9a-f]+: complete after .*, 0 queued stopped, 1 running \(1 stopped\)", ended.out), ended
    assert own.id in ended.out
    assert (await own.get()).status is Status.STOPPED
    assert (await bystander.get()).status is Status.RUNNING


async def test_ctrl_c_with_a_key_or_with_json_stops_the_agent_too(subagents: CommandLine, pool: Pool) -> None:
    command = await subagents.start("spawn", "nap", "--wait", "--json")
    own = await spawned_by_command(pool)
    await watched_by_another(pool, own)
    ended = await command.interrupted()
    assert (ended.code, ended.data["complete"], ended.data["queued_stopped"], ended.err) == (130, True, 1, "")
    command = await subagents.start("spawn", "nap", "--key", "k", "--wait")
    keyed = await eventually(lambda: _key_holder(pool, "k"), "the keyed agent is spawned", 60)
    await watched_by_another(pool, pool.handle(keyed))
    ended = await command.interrupted()
    assert ended.code == 130
    assert "was stopped" in ended.err
    assert {record.status for record in await pool.list()} == {Status.STOPPED}


async def _key_holder(pool: Pool, key: str) -> str | None:
    return cast("str | None", await cast("Any", pool.gateway.redis).get(f"{pool.prefix}key:{key}"))


async def test_tail_of_an_agent_tells_what_it_says_until_it_has_settled(subagents: CommandLine, pool: Pool, workers: Workers) -> None:
    await workers.start()
    handle = await pool.spawn("talk", {"lines": 3})
    await handle.wait()
    told = await subagents("tail", handle.id, "--json")
    events = [json.loads(line) for line in told.out.splitlines()]
    assert [event["kind"] for event in events][:3] == ["progress"] * 3
    resumed = await subagents("tail", handle.id, "--json", "--from", events[1]["cursor"], "--no-follow")
    assert [json.loads(line)["cursor"] for line in resumed.out.splitlines()] == [event["cursor"] for event in events[2:]]
    assert (told.code, resumed.code) == (0, 0)


async def test_tail_of_an_agent_that_goes_on_ends_at_the_newest_if_it_is_not_to_follow(
    subagents: CommandLine, pool: Pool, workers: Workers
) -> None:
    await workers.start()
    handle = await pool.spawn("talk", {"lines": 2, "seconds": 60})
    await eventually(lambda: _progress(handle), "it has said something", 30)
    ended = await subagents("tail", handle.id, "--no-follow")
    assert (ended.code, ended.out.count("progress")) == (0, 2)


async def _progress(handle: AgentHandle) -> bool:
    record = await handle.get()
    return record.progress is not None and record.progress == {"done": 2, "total": 2}


async def test_tail_lists_and_follows_the_history_of_the_pool(subagents: CommandLine, pool: Pool) -> None:
    handle = await pool.spawn("nap")
    listed = await subagents("tail", "--no-follow", "--json")
    assert [json.loads(line)["kind"] for line in listed.out.splitlines()] == ["created"]
    following = await subagents.start("tail", "--from", "0")
    await following.says(handle.id)
    await pool.pause(reason="a look")
    await following.says("reason=a look")
    ended = await following.interrupted()
    assert ended.code == 130
    assert re.fullmatch(r"to go on from here: --from \d+-\d+", ended.err.strip())
    await pool.unpause()


async def test_a_reader_that_has_seen_enough_is_no_error(subagents: CommandLine, pool: Pool) -> None:
    await asyncio.gather(*(pool.spawn("nap") for _ in range(300)))
    command = await subagents.start("tail", "--no-follow", "--json")
    await command.says("\n")
    cast("Any", command.process)._transport.get_pipe_transport(1).close()
    assert command.process.stderr is not None
    err = await asyncio.wait_for(command.process.stderr.read(), 60)
    assert (await asyncio.wait_for(command.process.wait(), 60), err) == (0, b"")
