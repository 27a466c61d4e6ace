"""Worker processes that a command starts and stops: always as `python -m subagents_worker`, never by import."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import IO

from subagents import settings
from subagents.cli import leash
from subagents.cli.errors import CommandFailed, ExitCode

DRAINING_ALONE, NOTHING_TO_DRAIN = 60.0, 5.0
"""Seconds that the workers of a command that was killed have to end; if its private server has gone with it, nothing they do counts."""


def worker_command(modules: Sequence[str], options: Mapping[str, object]) -> list[str]:
    """The command line of workers; options that were not given are the worker's to choose."""
    for module, extra in (("subagents_worker", "worker"), ("arq", "worker")):
        if find_spec(module) is None:
            raise CommandFailed("not_installed", f'workers need {module}: run pip install "subagents[{extra}]"', ExitCode.USAGE)
    given = [text for name, value in options.items() if value is not None for text in (f"--{name}", str(value))]
    return [sys.executable, "-m", "subagents_worker", *given, "--", *modules]


def worker_environment(url: str, pool: str) -> dict[str, str]:
    """The environment of workers. The URL may hold a password: it never stands on a command line."""
    return {**os.environ, settings.REDIS_URL_VARIABLE: url, settings.POOL_VARIABLE: pool}


class Workers:
    """Worker processes on a leash: they end when told to, and soon after this process if it cannot tell them."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], *, server_is_private: bool, output: IO[bytes] | None = None
    ) -> None:
        self._command, self._environment, self._output = command, environment, output
        self._alone_for = NOTHING_TO_DRAIN if server_is_private else DRAINING_ALONE
        self._leash: asyncio.subprocess.Process | None = None

    def __repr__(self) -> str:
        state = "stopped" if self._leash is None else "running" if self._leash.returncode is None else "ended"
        return f"<Workers {state}>"

    async def start(self) -> None:
        """Start them; they join the pool a moment later."""
        self._leash = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", leash.__file__, str(os.getpid()), str(self._alone_for), *self._command),
            env=self._environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=self._output,
            stderr=self._output,
            start_new_session=True,
        )

    async def ended(self) -> int:
        """Wait for their end; returns their exit code."""
        assert self._leash is not None
        return await self._leash.wait()

    def tell(self) -> None:
        """Pass SIGTERM on: the first time they drain, the second they hurry, the third they are killed."""
        if self._leash is not None and self._leash.stdin is not None:
            with suppress(OSError):
                self._leash.stdin.write(b".")

    async def stop(self) -> int:
        """Tell them to go and wait until they are gone."""
        if self._leash is None:
            return 0
        self.tell()
        return await self.ended()
