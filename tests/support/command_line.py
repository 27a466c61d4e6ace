"""The command line as a user has it: processes of their own, judged by exit code, stdout and stderr."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
import sys
import termios
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, cast

from subagents import AgentHandle, Pool, Status
from support.waiting import eventually

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

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self._started:
            if process.returncode is None:
                process.kill()
            await process.communicate()  # what it started may have its pipes; nothing is left open


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


async def spawned_by_command(pool: Pool, status: Status | None = None) -> AgentHandle:
    """The agent that a command has just spawned, once it stands there."""

    async def found() -> AgentHandle | None:
        page = await pool.list(limit=1)
        by_command = len(page) and any(scope.startswith("cli-") for scope in page[0].scopes)
        return pool.handle(page[0].id) if by_command and (status is None or page[0].status is status) else None

    return cast("AgentHandle", await eventually(found, f"an agent is spawned and {status}", 60))


async def watched_by_another(pool: Pool, handle: AgentHandle) -> None:
    """Wait until some client has asked to be told of an agent's end."""

    async def watched() -> bool:
        return bool(await cast("Any", pool.gateway.redis).hget(f"{pool.prefix}agent:{handle.id}", "watchers"))

    await eventually(watched, "a command waits for the agent", 60)


async def are_running(pool: Pool, count: int) -> bool:
    """True if so many agents run."""
    return len(await pool.list(status=Status.RUNNING)) == count


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
