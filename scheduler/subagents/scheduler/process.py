"""The scheduler as a service: start, stop, and run until told."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from subagents import keys
from subagents.errors import SubagentsError
from subagents.pool import Pool
from subagents.scheduler import fitness
from subagents.scheduler.rounds import Rounds
from subagents.scripts.server import server_facts

PATIENCE = 3.0
STOP_WITHIN, RESIGN_WITHIN = 2.0, 1.0


class SchedulerState(BaseModel):
    """A scheduler as it stands: whether it leads, when it last did its duties, and what fails."""

    model_config = ConfigDict(frozen=True)

    name: str
    pool: str
    running: bool
    leading: bool
    leading_for_s: float | None = None
    last_tick_ago_s: float | None = None
    failing_for_s: float | None = None
    last_error: str | None = None


class Scheduler:
    """One of any number of replicas for a pool: the one that leads does the duties, the others stand by.

    A pool works without any; what has no scheduler heals when a worker's next heartbeat comes, and forgets nothing.

    Args:
        url: `redis://`, `rediss://` or `unix://`.
        pool: its name; it is made if it does not exist yet.
        max_concurrent, lease, max_depth, max_bypass: what it is made with; the settings of a pool that exists stand (G3).

    Raises:
        InvalidArgument: a name or a setting is out of its bounds.
    """

    def __init__(
        self,
        url: str,
        *,
        pool: str = "default",
        max_concurrent: int | None = None,
        lease: float | None = None,
        max_depth: int | None = None,
        max_bypass: int | None = None,
    ) -> None:
        self.name = f"scheduler-{socket.gethostname()}-{os.getpid()}-{keys.new_id()[:8]}"
        self.pool = keys.pool_name(pool)
        self._open: Callable[[], Pool] = lambda: Pool(
            url,
            name=pool,
            max_concurrent=max_concurrent,
            lease=lease,
            max_depth=max_depth,
            max_bypass=max_bypass,
            by=self.name,
            patience=PATIENCE,
        )
        self._open()  # refuses what is out of bounds here and now
        self._changing = asyncio.Lock()
        self._ending, self._stopped = asyncio.Event(), asyncio.Event()
        self._connected: Pool | None = None
        self._rounds: Rounds | None = None
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        state = self.state()
        word = "stopped" if not state.running else "leading" if state.leading else "standing by"
        return f"<Scheduler {self.name} of pool {self.pool!r}, {word}>"

    def state(self) -> SchedulerState:
        """How it stands now. A stopped scheduler still tells its last error."""
        rounds = self._rounds
        if rounds is None:
            return SchedulerState(name=self.name, pool=self.pool, running=False, leading=False)
        running = self._task is not None
        return SchedulerState(
            name=self.name,
            pool=self.pool,
            running=running,
            leading=running and rounds.leadership.leading,
            leading_for_s=_ago(rounds.leadership.since) if running else None,
            last_tick_ago_s=_ago(rounds.last_at),
            failing_for_s=_ago(rounds.failures.since) if running else None,
            last_error=rounds.failures.last,
        )

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.stop()

    async def start(self) -> None:
        """Make the pool if need be, check the server, and begin the rounds; no effect on one that runs.

        Raises:
            UnfitServer: the server is too old, or may evict the pool's keys.
            RedisUnreachable, PermissionDenied, ForeignSchema.
        """
        async with self._changing:
            if self._task is not None:
                return
            pool = self._open()
            try:
                await pool.open()
                fitness.check(await server_facts(pool.gateway), pool.gateway.where)
            except BaseException:
                await pool.close()
                raise
            self._ending.clear()
            self._stopped.clear()
            self._connected, self._rounds = pool, Rounds(pool.gateway, self.pool, self.name)
            self._task = asyncio.create_task(self._rounds.keep(self._ending), name=self.name)

    async def stop(self) -> None:
        """Stop within a few seconds, whatever the server does, and give up the lead, so that another takes over at once."""
        async with self._changing:
            if self._task is None or self._connected is None or self._rounds is None:
                return
            self._ending.set()
            try:
                with suppress(TimeoutError):
                    async with asyncio.timeout(STOP_WITHIN):
                        await self._task
                with suppress(TimeoutError, SubagentsError):
                    async with asyncio.timeout(RESIGN_WITHIN):
                        await self._rounds.leadership.resign()
            finally:
                self._task = None
                self._stopped.set()
                await self._connected.close()

    async def run(self) -> None:
        """Start, run until SIGTERM, SIGINT or `stop()`, and stop. A signal also ends a start that still waits for the server.

        It takes these signals for itself while it runs; a program that handles them uses `start` and `stop`, or `async with`.
        """
        told = asyncio.Event()
        with _signals_call(told.set):
            try:
                await _until_first(self.start(), told.wait())
                await _until_first(self._stopped.wait(), told.wait())
            finally:
                await self.stop()


def _ago(moment: float | None) -> float | None:
    return None if moment is None else time.monotonic() - moment


@contextmanager
def _signals_call(tell: Callable[[], None]) -> Generator[None]:
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGTERM, signal.SIGINT)
    with suppress(ValueError, RuntimeError):  # outside of the main thread nobody can be told by signal, only by stop()
        for number in numbers:
            loop.add_signal_handler(number, tell)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


async def _until_first(*works: Coroutine[Any, Any, object]) -> None:
    """Return when the first is done, and raise what it raised; the others are cancelled."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in done:
        task.result()
