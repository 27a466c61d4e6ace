"""The scheduler as a service: start, tick, stop."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from contextlib import suppress

from pydantic import BaseModel, ConfigDict

from subagents.errors import InfrastructureError, SubagentsError
from subagents.pool import Pool
from subagents.scheduler.leader import LEASE, RENEW_EVERY, Leadership
from subagents.scripts import calls
from subagents.scripts.server import OLDEST, server_facts

log = logging.getLogger(__name__)

TICK, BUSY_TICK = 0.4, 0.02
BUDGET = 100
RETAIN_EVERY = 5.0
STOP_WITHIN = 3.0


class UnfitServer(InfrastructureError):
    """The server cannot hold the promises: too old, or set to evict keys when its memory is full."""


class SchedulerState(BaseModel):
    """A scheduler as it stands."""

    model_config = ConfigDict(frozen=True)

    name: str
    running: bool
    leading: bool
    leading_for_s: float | None
    last_tick_ago_s: float | None
    last_error: str | None


class Scheduler:
    """One of any number of replicas for a pool; the one that leads does the work, the others stand by.

    Args:
        url, pool: the pool; it is made if it does not exist yet.
        max_concurrent, lease, max_depth, max_bypass: what it is made with.
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
        self._pool = Pool(
            url,
            name=pool,
            max_concurrent=max_concurrent,
            lease=lease,
            max_depth=max_depth,
            max_bypass=max_bypass,
            by="scheduler",
            patience=3.0,
        )
        self._leadership = Leadership(self._pool.gateway, self._pool.prefix)
        self._task: asyncio.Task[None] | None = None
        self._ending = asyncio.Event()
        self._retained_at = 0.0
        self._ticked_at: float | None = None
        self._failure: str | None = None

    def __repr__(self) -> str:
        state = self.state()
        word = "stopped" if not state.running else "leading" if state.leading else "standing by"
        return f"<Scheduler {state.name} of pool {self._pool.name!r}, {word}>"

    def state(self) -> SchedulerState:
        """How it stands now."""
        now, since = time.monotonic(), self._leadership.since
        return SchedulerState(
            name=self._leadership.name,
            running=self._task is not None,
            leading=self._leadership.leading,
            leading_for_s=None if since is None else now - since,
            last_tick_ago_s=None if self._ticked_at is None else now - self._ticked_at,
            last_error=self._failure,
        )

    async def start(self) -> None:
        """Make the pool if need be, check the server, and begin to tick.

        Raises:
            UnfitServer: the server is too old, or may evict the pool's keys.
            RedisUnreachable, PermissionDenied, ForeignSchema.
        """
        if self._task is not None:
            return
        await self._pool.open()
        await self._check_server()
        self._ending.clear()
        self._task = asyncio.create_task(self._keep_ticking(), name="subagents-scheduler")

    async def stop(self) -> None:
        """Stop within a few seconds and give up the lead, so that another takes over at once."""
        task, self._task = self._task, None
        if task is None:
            return
        self._ending.set()
        done, _ = await asyncio.wait({task}, timeout=STOP_WITHIN)
        if not done:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        with suppress(SubagentsError):
            await self._leadership.resign()
        await self._pool.close()

    async def run(self) -> None:
        """Run until SIGTERM or SIGINT."""
        told = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, told.set)
        try:
            await self.start()
            log.info("%r has started", self)
            await told.wait()
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
            await self.stop()

    async def _check_server(self) -> None:
        facts = await server_facts(self._pool.gateway)
        where = self._pool.gateway.where
        if facts.version < OLDEST:
            raise UnfitServer(f"Redis at {where} is {'.'.join(map(str, facts.version))}, the oldest supported is 7.0")
        if facts.eviction not in (None, "noeviction"):
            raise UnfitServer(
                f"Redis at {where} evicts keys (maxmemory-policy {facts.eviction}); a whole pool could vanish: set it to noeviction"
            )
        if facts.persistent is False:
            log.warning("Redis at %s keeps nothing on disk: a restart loses the pool; turn appendonly on", where)

    async def _keep_ticking(self) -> None:
        while not self._ending.is_set():
            pause = RENEW_EVERY
            try:
                if await self._leadership.ask():
                    pause = BUSY_TICK if await self._tick() else TICK
                self._failure = None
            except SubagentsError as failure:
                self._note(failure)
                pause = TICK
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), pause)

    async def _tick(self) -> bool:
        """Do one portion of everything that is due; True if there is more."""
        gateway, prefix = self._pool.gateway, self._pool.prefix
        more = await gateway(calls.tend(prefix, BUDGET), patience=0)
        self._ticked_at = time.monotonic()
        if self._ticked_at - self._retained_at >= RETAIN_EVERY:
            if await gateway(calls.retain(prefix, BUDGET), patience=0):
                more = True
            else:
                self._retained_at = self._ticked_at
        return more

    def _note(self, failure: SubagentsError) -> None:
        """Say a failure once for as long as it lasts."""
        kind = type(failure).__name__
        if self._failure is None or not self._failure.startswith(kind):
            log.warning(
                "the scheduler cannot tend pool %r, and goes on trying (leads again within %g s): %s", self._pool.name, LEASE, failure
            )
        self._failure = f"{kind}: {failure}"
