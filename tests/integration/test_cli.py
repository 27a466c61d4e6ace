"""The command line on bad input, as a window on the pool, and in control of it."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from subagents import Pool
from support.command_line import (
    PYTHON,
    TERMINAL_WIDTH,
    CommandLine,
    Running,
    are_running,
    on_a_terminal,
)
from support.waiting import eventually
from support.workers import Workers


@pytest.fixture
async def subagents(redis_url: str, pool_name: str) -> AsyncIterator[CommandLine]:
    async with CommandLine(redis_url, pool_name) as started:
        yield started


# What there is, and what is wrong ------------------------------------------------------------------------------------


async def test_help_and_version_need_no_server(subagents: CommandLine) -> None:
    nowhere = {"SUBAGENTS_REDIS_URL": ""}
    version, bare, helped = await asyncio.gather(
        subagents("--version", **nowhere), subagents(**nowhere), subagents("spawn", "--help", **nowhere)
    )
    assert re.fullmatch(r"subagents \d+\.\d+\.\d+\n", version.out)
    assert set(re.findall(r"^  ([a-z]+)  ", bare.out, re.MULTILINE)) == COMMANDS
    for option in ("--json", "--redis", "--pool", "--scope", "--wait"):
        assert option in helped.out
    assert subagents.url not in helped.out
    assert (version.code, bare.code, helped.code) == (0, 0, 0)


COMMANDS = {"up", "demo", "scheduler", "worker", "spawn", "ps", "show", "wait", "tail"} | {
    "abort",
    "interrupt",
    "halt",
    "unhalt",
    "pause",
    "unpause",
    "limit",
}

BAD_INPUT = {
    "a command that is none": (["frobnicate"], 2, "No such command 'frobnicate'"),
    "an option that is none": (["ps", "--jsn"], 2, "--json"),
    "an argument too few": (["spawn"], 2, "TYPE"),
    "no number": (["spawn", "echo", "--timeout", "soon"], 2, "--timeout"),
    "a URL of another kind": (["ps", "--redis", "http://localhost:6379"], 2, "redis://"),
    "a URL with a port that is none": (["ps", "--redis", "redis://localhost:no"], 2, "redis://localhost:no"),
    "a pool name that is none": (["ps", "--pool", "no/slashes"], 2, "1 to 64 letters"),
    "a pool that is not there": (["ps", "--pool", "mistyped"], 3, "'mistyped' does not exist"),
    "a server that is not there": (["ps", "--redis", "redis://:secret@127.0.0.1:1/0"], 3, "redis://127.0.0.1:1/0 does not answer"),
    "input that is no JSON": (["spawn", "echo", "{topic: permits}"], 2, "is no JSON"),
    "input in a file that is not there": (["spawn", "echo", "@/nowhere/input.json"], 2, "/nowhere/input.json"),
    "a type that is no name": (["spawn", "no such type"], 2, "agent type 'no such type'"),
    "a scope that is none": (["spawn", "echo", "--scope", "*"], 2, "scope '*'"),
    "an id that was never issued": (["show", "0123456789abcdef0123"], 2, "no agent '0123456789abcdef0123'"),
    "an id that is none": (["wait", "no id!"], 2, "no agent 'no id!'"),
    "an unknown agent to abort": (["abort", "0123456789abcdef0123"], 2, "no agent"),
    "an unknown agent to follow": (["tail", "0123456789abcdef0123"], 2, "no agent"),
    "a cursor that is none": (["tail", "--from", "yesterday"], 2, "cursor 'yesterday'"),
    "a status that is none": (["ps", "--status", "idle"], 2, "queued, running"),
    "a wait that is none": (["interrupt", "--wait", "-1"], 2, "seconds"),
    "a module that does not import": (["worker", "no_such_module"], 2, "no_such_module"),
    "a directory that is none": (["demo", "/nowhere"], 2, "'/nowhere' is no directory"),
    "a limit on the way that is none": (["demo", "--limit", "4,many"], 2, "'many'"),
    "two servers at once": (["up", "--port", "0"], 2, "--port"),
}


@pytest.mark.parametrize(("arguments", "code", "words"), BAD_INPUT.values(), ids=BAD_INPUT.keys())
async def test_bad_input_is_one_clear_line_and_the_right_exit_code(
    subagents: CommandLine, pool: Pool, arguments: list[str], code: int, words: str
) -> None:
    ended = await subagents(*arguments)
    assert (ended.code, words in ended.error_line) == (code, True), ended
    assert "secret" not in ended.err
    assert len(await pool.list()) == 0


@pytest.mark.parametrize("limit", ["2.5", "-1", "true", "1e12", "five", "1000001", "", "٣"])
async def test_L9_a_limit_out_of_bounds_is_refused_and_the_old_one_stands(subagents: CommandLine, pool: Pool, limit: str) -> None:
    ended = await subagents("limit", limit)
    assert ended.code == 2
    assert "from 0 to 1 000 000" in ended.error_line
    assert (await pool.stats()).max_concurrent == 4


async def test_an_unknown_type_is_refused_once_workers_have_said_theirs(subagents: CommandLine, pool: Pool, workers: Workers) -> None:
    await workers.start()
    ended = await subagents("spawn", "no_such_type")
    assert ended.code == 2
    assert "unknown agent type 'no_such_type'; known types: " in ended.error_line


async def test_no_server_named_says_what_to_set(subagents: CommandLine) -> None:
    ended = await subagents("ps", SUBAGENTS_REDIS_URL="")
    assert ended.code == 2
    assert "SUBAGENTS_REDIS_URL" in ended.error_line
    assert "--redis" in ended.err


async def test_with_json_errors_are_json_too(subagents: CommandLine, pool: Pool) -> None:
    unknown, usage, down = await asyncio.gather(
        subagents("show", "nobody", "--json"),
        subagents("show", "--json"),
        subagents("ps", "--json", "--redis", "redis://127.0.0.1:1"),
    )
    assert [json.loads(ended.error_line)["error"] for ended in (unknown, usage, down)] == ["unknown_agent", "usage", "redis_unreachable"]
    assert [ended.code for ended in (unknown, usage, down)] == [2, 2, 3]


async def test_a_server_that_never_answers_is_given_up_within_seconds(subagents: CommandLine) -> None:
    before = asyncio.get_running_loop().time()
    with socket.create_server(("127.0.0.1", 0)) as mute:  # the kernel takes connections that nobody serves
        ended = await subagents("ps", "--redis", f"redis://127.0.0.1:{mute.getsockname()[1]}")
    assert asyncio.get_running_loop().time() - before < 10  # 3 s of patience; the rest is a busy machine
    assert ended.code == 3
    assert "does not answer" in ended.error_line


@pytest.mark.parametrize("arguments", [["ps"], ["spawn", "echo"], ["limit", "9"], ["halt"], ["show", "0123456789abcdef0123"], ["tail"]])
async def test_a_foreign_schema_is_refused_and_nothing_is_changed(subagents: CommandLine, pool: Pool, arguments: list[str]) -> None:
    redis = cast("Any", pool.gateway.redis)
    await redis.hset(f"{pool.prefix}config", "schema", "99")
    before = await redis.hgetall(f"{pool.prefix}config")
    ended = await subagents(*arguments)
    assert ended.code == 3
    assert "schema version '99'" in ended.error_line
    assert await redis.hgetall(f"{pool.prefix}config") == before
    assert await redis.exists(f"{pool.prefix}seq") == 0


async def test_a_user_without_rights_is_told_so(subagents: CommandLine, pool: Pool, redis_url: str) -> None:
    redis = cast("Any", pool.gateway.redis)
    user = pool.name
    await redis.execute_command("ACL", "SETUSER", user, "on", ">secret", "~*", "&*", "+@read", "+@connection")
    try:
        where = redis_url.replace("://", f"://{user}:secret@")
        refused, wrong = await asyncio.gather(
            subagents("spawn", "echo", "--redis", where), subagents("ps", "--redis", where.replace("secret", "mistaken"))
        )
    finally:
        await redis.execute_command("ACL", "DELUSER", user)
    assert (refused.code, wrong.code) == (3, 3)
    assert "lacks a right" in refused.error_line
    assert "refused the login" in wrong.error_line
    assert "secret" not in refused.err
    assert "mistaken" not in wrong.err
    assert len(await pool.list()) == 0


async def test_without_the_extra_it_says_what_to_install() -> None:
    script = "import sys; sys.modules['typer'] = None; from subagents.cli.__main__ import main; main()"
    process = await asyncio.create_subprocess_exec(
        PYTHON, "-c", script, "ps", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    ended = await Running(process).ended()
    assert ended.code == 2
    assert 'pip install "subagents[cli]"' in ended.error_line


# Looking -------------------------------------------------------------------------------------------------------------


async def test_ps_lists_what_is_not_settled_and_filters(subagents: CommandLine, pool: Pool, workers: Workers) -> None:
    await workers.start()
    settled = await pool.spawn("echo", scopes=["old"])
    await settled.wait()
    running = [await pool.spawn("nap", {"seconds": 60}, scopes=["new"]) for _ in range(4)]
    queued = [await pool.spawn("nap", {"seconds": 60}, scopes=["new"]) for _ in range(3)]
    await eventually(lambda: are_running(pool, 4), "four run", 30)
    listed, everything, by_scope, by_status, cut = await asyncio.gather(
        subagents("ps", "--json"),
        subagents("ps", "--json", "--all"),
        subagents("ps", "--json", "--scope", "old", "--all"),
        subagents("ps", "--json", "--status", "queued"),
        subagents("ps", "--json", "--limit", "5"),
    )
    newest_first = [handle.id for handle in reversed(running + queued)]
    assert [record["id"] for record in listed.data["agents"]] == newest_first
    assert [record["id"] for record in everything.data["agents"]] == [*newest_first, settled.id]
    assert [record["id"] for record in by_scope.data["agents"]] == [settled.id]
    assert [record["queue_position"] for record in by_status.data["agents"]] == [3, 2, 1]
    assert {handle.id for handle in running} < {record["id"] for record in cut.data["agents"]}
    assert (listed.data["stats"]["active"], listed.data["stats"]["queued"]) == (4, 3)
    table = await subagents("ps")
    assert "limit 4 · 4 active · 3 queued · 1 worker" in table.out
    assert re.search(rf"{queued[2].id}  nap +queued #3 +new ", table.out), table.out


async def test_show_tells_everything_of_one_agent(subagents: CommandLine, pool: Pool, workers: Workers) -> None:
    await workers.start()
    handle = await pool.spawn("fail", {"text": "on purpose"}, description="it \x1b[31mfails")
    await handle.wait()
    shown, as_json = await asyncio.gather(subagents("show", handle.id), subagents("show", handle.id, "--json"))
    for words in ("error (agent_error)", "RuntimeError: on purpose", "it �[31mfails", "after it was enqueued"):
        assert words in shown.out
    assert "\x1b" not in shown.out
    assert as_json.data["error_kind"] == "agent_error"


async def test_tables_fit_a_terminal_of_80_columns_and_keep_the_ids_whole(subagents: CommandLine, pool: Pool, workers: Workers) -> None:
    await workers.start()
    handle = await pool.spawn("nap", {"seconds": 60}, scopes=["a-scope-with-a-rather-long-name", "another-one"])
    await eventually(lambda: are_running(pool, 1), "it runs", 30)
    screen = await on_a_terminal(subagents, "ps")
    assert handle.id in screen
    assert "running" in screen
    assert max(len(line) for line in screen.splitlines()) <= TERMINAL_WIDTH


# Staying in control --------------------------------------------------------------------------------------------------


async def test_abort_says_what_it_found(subagents: CommandLine, pool: Pool) -> None:
    handle = await pool.spawn("nap")
    first, second = [await subagents("abort", handle.id, "--reason", "a mistake", "--json") for _ in range(2)]
    assert [first.data["answer"], second.data["answer"]] == ["stopped", "already_terminal"]
    assert (first.code, second.code) == (0, 0)
    assert (await handle.get()).stop_reason == "a mistake"


async def test_interrupt_prints_who_stopped_and_exits_0_if_everyone_is_out(subagents: CommandLine, pool: Pool, workers: Workers) -> None:
    await workers.start()
    handles = [await pool.spawn("nap", {"seconds": 60}, scopes=["session-42"]) for _ in range(6)]
    other = await pool.spawn("nap", {"seconds": 60})
    await eventually(lambda: are_running(pool, 4), "four run", 30)
    ended = await subagents("interrupt", "--scope", "session-42", "--reason", "Esc")
    assert ended.code == 0
    assert re.search(r"scope session-42: complete after .*, 2 queued stopped, 4 running \(4 stopped\)", ended.out), ended
    assert all(re.search(rf"{handle.id}  stopped in \d+ ms", ended.out) for handle in handles[:4])
    assert not (await other.get()).settled
    everyone = await subagents("interrupt", "--json")
    assert (everyone.code, everyone.data["scope"], everyone.data["complete"]) == (0, "*", True)


async def test_interrupt_names_who_does_not_stop_and_exits_4(subagents: CommandLine, pool: Pool, workers: Workers) -> None:
    await workers.start(grace=60)
    handle = await pool.spawn("stubborn", {"seconds": 600})
    await eventually(lambda: are_running(pool, 1), "it runs", 30)
    ended = await subagents("interrupt", "--wait", "1.5")
    assert ended.code == 4
    assert "not complete" in ended.out
    assert re.search(rf"{handle.id}  not responding for ", ended.out), ended.out


async def test_interrupt_of_many_counts_them_by_worker(subagents: CommandLine, pool: Pool, workers: Workers) -> None:
    await workers.start(processes=2, slots=20)
    await pool.set_max_concurrent(30)
    await asyncio.gather(*(pool.spawn("nap", {"seconds": 60}) for _ in range(30)))
    await eventually(lambda: are_running(pool, 30), "thirty run", 30)
    ended = await subagents("interrupt")
    assert ended.code == 0
    assert "30 running (30 stopped)" in ended.out
    head, *rows = ended.out.splitlines()[1:]
    assert head.split() == ["WORKER", "STOPPED", "SLOWEST"]
    assert sum(int(row.split()[1]) for row in rows) == 30


async def test_I12_pause_and_halt_are_flags_of_their_own(subagents: CommandLine, pool: Pool) -> None:
    assert (await subagents("pause", "--reason", "a look")).code == 0
    halted = await subagents("halt", "--reason", "an incident", "--json")
    assert (halted.code, halted.data["scope"], halted.data["complete"]) == (0, "*", True)
    refused = await subagents("spawn", "echo")
    assert (refused.code, "unhalt" in refused.error_line) == (2, True)
    listed = await subagents("ps")
    assert "HALTED" in listed.out
    assert "PAUSED" in listed.out
    unhalted = await subagents("unhalt")
    assert "still paused" in unhalted.out
    assert (await subagents("unpause", "--json")).data == {"paused": False, "halted": False}
    assert (await subagents("spawn", "echo")).code == 0


async def test_limit_prints_and_sets(subagents: CommandLine, pool: Pool) -> None:
    assert (await subagents("limit")).out == "4\n"
    assert (await subagents("limit", "0")).out == "4 → 0\n"
    assert (await subagents("limit", "7", "--json")).data == {"before": 0, "max_concurrent": 7}
    assert (await pool.stats()).max_concurrent == 7
