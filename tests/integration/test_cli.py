"""The command line as a user has it: processes of their own, on a real server, judged by exit code, stdout and stderr."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
import socket
import sys
import termios
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from subagents import AgentHandle, Pool, Status
from support.waiting import eventually
from support.workers import Workers

TERMINAL_WIDTH = 80
COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
PYTHON = sys.executable


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)

    @property
    def error_line(self) -> str:
        """The one line that an error has."""
        assert self.out == "", self
        assert "Traceback" not in self.err, self.err
        assert self.err.count("\n") == 1, self.err
        assert self.err.endswith("\n"), self.err
        return self.err.removesuffix("\n")


class Running:
    """A command that is under way."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.said = b""

    async def says(self, text: str) -> None:
        """Wait until it has said this on stdout."""
        assert self.process.stdout is not None
        while text.encode() not in self.said:
            chunk = await asyncio.wait_for(self.process.stdout.read(4096), 60)
            assert chunk, f"it ended without saying {text!r}: {self.said!r}"
            self.said += chunk

    async def interrupted(self) -> Ended:
        """Press Ctrl-C, and wait for the end."""
        self.process.send_signal(signal.SIGINT)
        return await self.ended()

    async def ended(self) -> Ended:
        out, err = await asyncio.wait_for(self.process.communicate(), 60)
        assert self.process.returncode is not None
        return Ended(self.process.returncode, (self.said + out).decode(), err.decode())


class CommandLine:
    """Runs `subagents …` against one pool."""

    def __init__(self, url: str, pool: str) -> None:
        self.url, self.pool = url, pool
        self._started: list[asyncio.subprocess.Process] = []

    async def start(self, *arguments: str, **environment: str) -> Running:
        process = await asyncio.create_subprocess_exec(
            *(PYTHON, "-m", "subagents.cli", *arguments),
            env={**os.environ, "SUBAGENTS_REDIS_URL": self.url, "SUBAGENTS_POOL": self.pool, **environment},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        self._started.append(process)
        return Running(process)

    async def __call__(self, *arguments: str, **environment: str) -> Ended:
        return await (await self.start(*arguments, **environment)).ended()

    async def stop(self) -> None:
        for process in self._started:
            if process.returncode is None:
                process.kill()
            await process.communicate()  # what it started may have its pipes; nothing is left open


@pytest.fixture
async def subagents(redis_url: str, pool_name: str) -> AsyncIterator[CommandLine]:
    started = CommandLine(redis_url, pool_name)
    yield started
    await started.stop()


async def spawned_by_command(pool: Pool, status: Status | None = None) -> AgentHandle:
    """The agent that a command has just spawned, once it stands there."""

    async def found() -> AgentHandle | None:
        page = await pool.list(limit=1)
        by_command = len(page) and any(scope.startswith("cli-") for scope in page[0].scopes)
        return pool.handle(page[0].id) if by_command and (status is None or page[0].status is status) else None

    return cast("AgentHandle", await eventually(found, f"an agent is spawned and {status}", 60))


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


# Spawning and following ----------------------------------------------------------------------------------------------


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


async def watched_by_another(pool: Pool, handle: AgentHandle) -> None:
    """Wait until some client has asked to be told of an agent's end."""

    async def watched() -> bool:
        return bool(await cast("Any", pool.gateway.redis).hget(f"{pool.prefix}agent:{handle.id}", "watchers"))

    await eventually(watched, "a command waits for the agent", 60)


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


# Looking -------------------------------------------------------------------------------------------------------------


async def test_ps_lists_what_is_not_settled_and_filters(subagents: CommandLine, pool: Pool, workers: Workers) -> None:
    await workers.start()
    settled = await pool.spawn("echo", scopes=["old"])
    await settled.wait()
    running = [await pool.spawn("nap", {"seconds": 60}, scopes=["new"]) for _ in range(4)]
    queued = [await pool.spawn("nap", {"seconds": 60}, scopes=["new"]) for _ in range(3)]
    await eventually(lambda: _running(pool, 4), "four run", 30)
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


async def _running(pool: Pool, count: int) -> bool:
    return len(await pool.list(status=Status.RUNNING)) == count


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
    await eventually(lambda: _running(pool, 1), "it runs", 30)
    screen = await on_a_terminal(subagents, "ps")
    assert handle.id in screen
    assert "running" in screen
    assert max(len(line) for line in screen.splitlines()) <= TERMINAL_WIDTH


async def on_a_terminal(subagents: CommandLine, *arguments: str) -> str:
    """What a command shows on a terminal of 80 columns, without its colours."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (40, TERMINAL_WIDTH))
    process = await asyncio.create_subprocess_exec(
        *(PYTHON, "-m", "subagents.cli", *arguments),
        env={**os.environ, "SUBAGENTS_REDIS_URL": subagents.url, "SUBAGENTS_POOL": subagents.pool, "TERM": "xterm", "COLUMNS": ""},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    try:
        while chunk := await asyncio.to_thread(os.read, ours, 4096):
            shown += chunk
    except OSError:  # Linux says that the other end is gone in this way
        pass
    finally:
        os.close(ours)
    assert await asyncio.wait_for(process.wait(), 60) == 0, shown
    return COLOURS.sub("", shown.decode().replace("\x1b[1A", "\n")).replace("\r", "")


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
    await eventually(lambda: _running(pool, 4), "four run", 30)
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
    await eventually(lambda: _running(pool, 1), "it runs", 30)
    ended = await subagents("interrupt", "--wait", "1.5")
    assert ended.code == 4
    assert "not complete" in ended.out
    assert re.search(rf"{handle.id}  not responding for ", ended.out), ended.out


async def test_interrupt_of_many_counts_them_by_worker(subagents: CommandLine, pool: Pool, workers: Workers) -> None:
    await workers.start(processes=2, slots=20)
    await pool.set_max_concurrent(30)
    await asyncio.gather(*(pool.spawn("nap", {"seconds": 60}) for _ in range(30)))
    await eventually(lambda: _running(pool, 30), "thirty run", 30)
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


# Serving -------------------------------------------------------------------------------------------------------------

AGENT_MODULE = """
from subagents_worker import AgentContext, agent

@agent("greet")
async def greet(ctx: AgentContext, name: str) -> str:
    return f"hello {name}"
"""


def children_of(pid: int) -> list[int]:
    """The pids of everything that a process has started, whichever of its threads did."""
    own: list[int] = []
    for listing in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            own += map(int, listing.read_text().split())
    return own + [grandchild for child in own for grandchild in children_of(child)]


def command_line_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_worker_becomes_the_worker_without_showing_the_url(subagents: CommandLine, pool: Pool, tmp_path: Path) -> None:
    module = tmp_path / "greeting_agents.py"
    module.write_text(AGENT_MODULE)
    worker = await subagents.start("worker", str(module), "--slots", "3", "--drain-timeout", "1", "--redis", subagents.url)
    assert await pool.run("greet", {"name": "you"}) is not None
    argv = command_line_of(worker.process.pid)
    assert argv[1:3] == ["-m", "subagents_worker"]
    assert subagents.url not in argv
    worker.process.terminate()
    assert (await worker.ended()).code == 0


async def test_up_runs_everything_and_ctrl_c_ends_everything_in_order(subagents: CommandLine, tmp_path: Path) -> None:
    module = tmp_path / "greeting_agents.py"
    module.write_text(AGENT_MODULE)
    command = await subagents.start("up", str(module), "--json", "--max-concurrent", "2", SUBAGENTS_REDIS_URL="")
    await command.says("\n")
    url = json.loads(command.said)["redis"]
    here = CommandLine(url, subagents.pool)
    greeted = await here("spawn", "greet", '{"name": "you"}', "--wait")
    assert (greeted.code, greeted.data) == (0, "hello you")
    assert (await here("limit")).out == "2\n"
    started = children_of(command.process.pid)
    assert len(started) >= 5  # the warden and its server, the leash, the worker's supervisor and process
    ended = await command.interrupted()
    assert (ended.code, "Traceback" in ended.err) == (0, False)
    assert not any(alive(pid) for pid in started)


async def test_up_that_is_killed_leaves_nothing_behind(subagents: CommandLine, tmp_path: Path) -> None:
    module = tmp_path / "greeting_agents.py"
    module.write_text(AGENT_MODULE)
    command = await subagents.start("up", str(module), "--json", "--drain-timeout", "1", "--grace", "1", SUBAGENTS_REDIS_URL="")
    await command.says("\n")
    assert (await CommandLine(json.loads(command.said)["redis"], subagents.pool)("spawn", "greet", '{"name": "you"}', "--wait")).code == 0
    started = children_of(command.process.pid)
    command.process.kill()
    await eventually(lambda: not any(alive(pid) for pid in started), "everything that it started has ended", 30)


async def test_up_with_a_module_that_does_not_import_says_so_and_ends(subagents: CommandLine) -> None:
    ended = await subagents("up", "no_such_module", SUBAGENTS_REDIS_URL="")
    assert ended.code == 2
    assert "no_such_module" in ended.err.splitlines()[-1]
    assert "Traceback" not in ended.err


async def test_a_scheduler_says_that_it_runs_and_ends_on_ctrl_c(subagents: CommandLine, pool: Pool) -> None:
    command = await subagents.start("scheduler", "--max-concurrent", "9")
    await command.says("scheduler of pool")
    ended = await command.interrupted()
    assert (ended.code, "Traceback" in ended.err) == (0, False)
    assert (await pool.stats()).max_concurrent == 4  # G3: the stored limit stands


# The demo ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A folder of Python files that take some hundredths of a second each."""
    for number in range(24):
        (tmp_path / f"module_{number:02}.py").write_text(f"def function_{number}(x):\n    return x if x else {number}\n" * 1000)
    return tmp_path


async def test_the_demo_measures_for_real_under_a_limit_that_changes(subagents: CommandLine, sources: Path) -> None:
    ended = await subagents("demo", str(sources), "--limit", "2,6", "--json", SUBAGENTS_REDIS_URL="")
    assert (ended.code, ended.err) == (0, "")
    assert ended.data["agents"] == 26  # the parent, one for each file, and the one that writes the summary
    assert ended.data["limits"] == [4, 2, 6]
    assert (ended.data["within_limit"], ended.data["in_order"]) == (True, True)
    assert 1 < ended.data["peak"] <= 6
    assert (ended.data["summary"]["files"], ended.data["summary"]["functions"]) == (24, 24 * 1000)


async def test_the_demo_tells_its_progress_and_prints_the_table(subagents: CommandLine, sources: Path) -> None:
    ended = await subagents("demo", str(sources), "--files", "5", SUBAGENTS_REDIS_URL="")
    assert ended.code == 0
    assert "5 files" in ended.out
    assert re.search(r"^7 agents in .* at most \d at once \(limit 4\), started in spawn order$", ended.out, re.MULTILINE), ended.out
    assert "workers are starting" in ended.err


async def test_the_demo_draws_on_a_terminal(subagents: CommandLine, sources: Path) -> None:
    screen = await on_a_terminal(subagents, "demo", str(sources))
    assert "of 24 files" in screen
    assert "26 agents in" in screen
    assert max(len(line) for line in screen.splitlines()) <= TERMINAL_WIDTH


async def test_ctrl_c_in_the_demo_interrupts_it_and_prints_the_report(subagents: CommandLine) -> None:
    command = await subagents.start("demo", SUBAGENTS_REDIS_URL="")
    assert command.process.stderr is not None
    told = b""
    while b"1 waiting" not in told:
        chunk = await asyncio.wait_for(command.process.stderr.read(4096), 60)
        assert chunk, told
        told += chunk
    started = children_of(command.process.pid)
    ended = await command.interrupted()
    assert ended.code == 130
    assert "Traceback" not in ended.err
    assert re.search(r"Interrupt of scope demo-[0-9a-f]+: complete after .* queued stopped, \d+ running", ended.out), ended.out
    assert started
    assert not any(alive(pid) for pid in started)
