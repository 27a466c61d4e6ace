"""Keeps N worker processes alive, reports at once when one has died, and passes the word to stop on."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from contextlib import suppress

from subagents.errors import PoolNotFound, SubagentsError
from subagents.pool import Pool
from subagents.scripts import calls
from subagents_worker.options import WorkerOptions
from subagents_worker.runtime import PATIENCE, new_worker_name

log = logging.getLogger(__name__)

LOSE_BUDGET = 200
FIRST_CONTACT = 3.0
REPORT_WITHIN, REPORT_WITHIN_LEAVING = 30.0, 3.0
FIRST_PAUSE, LONGEST_PAUSE, STEADY_AFTER = 0.1, 5.0, 10.0
WORKER_VARIABLE, PIPE_VARIABLE = "SUBAGENTS_WORKER_NAME", "SUBAGENTS_WORKER_PIPE"
OUT_OF_TIME = 5.0
"""Seconds beyond drain and grace after which a process that should have gone is killed."""


class Supervisor:
    """The parent of the worker processes of one machine. It runs no agents itself."""

    def __init__(self, options: WorkerOptions, command: tuple[str, ...]) -> None:
        self._options, self._command = options, command
        self._pool = Pool(options.url, name=options.pool, by="supervisor", patience=PATIENCE)
        self._children: dict[str, asyncio.subprocess.Process] = {}
        self._told = asyncio.Event()
        self._signals = 0

    def __repr__(self) -> str:
        return f"<Supervisor of {len(self._children)} of {self._options.processes} processes>"

    async def run(self) -> int:
        """Supervise until told to stop (SIGTERM or Ctrl-C: drain; a second time: now); returns the exit code."""
        with suppress(PoolNotFound):  # its workers wait for it
            await self._pool.gateway(calls.stats(self._pool.prefix), patience=FIRST_CONTACT)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._tell)
        keepers = [asyncio.create_task(self._keep(index)) for index in range(self._options.processes)]
        try:
            codes = await asyncio.gather(*keepers)
        finally:
            for keeper in keepers:
                keeper.cancel()
            self._pass_on(signal.SIGKILL)
            await self._pool.close()
        return max(codes)

    def _tell(self) -> None:
        self._signals += 1
        if self._signals == 1:
            log.info("told to stop: draining for up to %g s", self._options.drain_timeout)
        self._told.set()
        self._pass_on(signal.SIGTERM)

    def _pass_on(self, number: signal.Signals) -> None:
        for child in self._children.values():
            with suppress(ProcessLookupError):
                child.send_signal(number)

    async def _keep(self, index: int) -> int:
        """Keep one place filled; a process that dies young is replaced more and more slowly."""
        pause = FIRST_PAUSE
        while True:
            worker = new_worker_name()
            born = time.monotonic()
            code = await self._one_life(worker)
            if code != 0:
                await self._report_lost(worker, code)
            if self._told.is_set():
                return 0 if code in (0, -signal.SIGTERM) else 1
            pause = FIRST_PAUSE if time.monotonic() - born > STEADY_AFTER else min(pause * 2, LONGEST_PAUSE)
            log.warning("worker process %s ended (%s); the next one starts in %.1f s", worker, _cause(code), pause)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._told.wait(), pause)
            if self._told.is_set():
                return 0

    async def _one_life(self, worker: str) -> int:
        """Start a process and return its exit code. It holds the reading end of a pipe: when this process dies, it learns of it."""
        reading, writing = os.pipe()
        try:
            environment = {**os.environ, WORKER_VARIABLE: worker, PIPE_VARIABLE: str(reading)}
            child = await asyncio.create_subprocess_exec(
                *self._command, env=environment, pass_fds=(reading,), stdin=asyncio.subprocess.DEVNULL
            )
        finally:
            os.close(reading)
        self._children[worker] = child
        try:
            if self._told.is_set():
                child.send_signal(signal.SIGTERM)
            return await self._until_gone(child)
        finally:
            del self._children[worker]
            os.close(writing)

    async def _until_gone(self, child: asyncio.subprocess.Process) -> int:
        waiting = asyncio.ensure_future(child.wait())
        told = asyncio.ensure_future(self._told.wait())
        await asyncio.wait({waiting, told}, return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        bound = self._options.drain_timeout + self._options.grace + OUT_OF_TIME
        done, _ = await asyncio.wait({waiting}, timeout=bound if self._told.is_set() else None)
        if not done:
            log.error("worker process %d did not go within %g s and is killed", child.pid, bound)
            child.kill()
        return await waiting

    async def _report_lost(self, worker: str, code: int) -> None:
        """The process is dead for certain: its permits need not wait for their leases."""
        log.warning("worker process %s died (%s); its agents are reported lost", worker, _cause(code))
        try:
            async with asyncio.timeout(REPORT_WITHIN_LEAVING if self._told.is_set() else REPORT_WITHIN):
                while await self._pool.gateway(calls.lose(self._pool.prefix, worker, LOSE_BUDGET)):
                    continue
        except (SubagentsError, TimeoutError) as failure:
            log.warning("the loss of %s could not be reported, its leases will run out: %s", worker, failure)


def command_for(options: WorkerOptions) -> tuple[str, ...]:
    """The command line of a worker process; the server's URL, which may hold a password, travels in the environment."""
    return (
        sys.executable,
        "-m",
        "subagents_worker",
        *options.modules,
        "--slots",
        str(options.slots),
        "--grace",
        str(options.grace),
        "--drain-timeout",
        str(options.drain_timeout),
    )


def _cause(code: int) -> str:
    if code < 0:
        with suppress(ValueError):
            return signal.Signals(-code).name
    return f"exit code {code}"
