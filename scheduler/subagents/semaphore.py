"""The FIFO permit semaphore: at most so many at once in the whole fleet, first come, first served, over Redis; knows no agents (L12).

    from subagents.semaphore import Semaphore

    async with Semaphore("redis://127.0.0.1:6379/0", name="gpu", max_concurrent=4) as semaphore:
        async with semaphore.permit():      # waits its turn
            ...                             # at most four such blocks run, in all processes together
        handle = await semaphore.schedule(work)
        value = await handle

A permit is a lease. A thread of this process renews it, so a blocked event loop keeps it, and a process that dies gives it back when the
lease runs out. **A process that is frozen or cut off for longer than a lease loses its permits while its code may still run**, beside
that of whoever got them: this is not prevented, only told (`Permit.lost`, `PermitLost`), unless you opt into `end_process=True`. Then
the kernel ends the process before its lease can have run out, so nothing of it runs afterwards; work handed to another machine, and a
machine that is suspended as a whole, are still not covered. A child made by `fork` must open a `Semaphore` of its own.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

from subagents import keys, settings
from subagents.deadman import DeadMansSwitch
from subagents.errors import PermitLost, SemaphoreClosed
from subagents.models.stats import SemaphoreStatistics
from subagents.permit import Permit
from subagents.permit_keeper import PermitKeeper, keep
from subagents.permit_line import PermitLine
from subagents.scheduled import Scheduled
from subagents.scripts import calls
from subagents.scripts.gateway import Gateway
from subagents.settings import LeaseTimes, PoolSettings

__all__ = ["Permit", "Scheduled", "Semaphore", "SemaphoreClosed"]

T = TypeVar("T")
CLEAR_BUDGET = 500
LONGEST_TIMEOUT = 365 * 86400.0


class Semaphore:
    """At most `max_concurrent` permits at once among all processes that open the same name, granted strictly first come, first served.

    Open it with `async with`. A normal exit waits for what was scheduled here; an exit by an error stops that. Waiters survive an
    outage of the server in the line; a place is lost, and taken anew at the end, only if this process was away for a whole lease.

    Args:
        url: `redis://`, `rediss://` or `unix://`; Redis 7.0 or later.
        name: 1 to 64 letters, digits, `_`, `.` or `-`. It has keys of its own: a pool may have the same name.
        max_concurrent: permits, an integer 0..1 000 000; 0 holds everyone. Default 4.
        lease: seconds, 1..3600, for which a permit outlives its holder. Default 15.
            Both are used only if no semaphore of this name exists; a stored setting stands until someone sets it (G3).
        end_process: end this process by SIGALRM before the lease of a permit that it holds can have run out (L16). Open it in the main
            thread; SIGALRM and ITIMER_REAL then belong to the semaphore. Without it, nothing ends the process.

    Raises:
        InvalidArgument: an argument is out of its bounds, or the switch cannot be had here.
        RedisUnreachable: on entry, if the server does not answer within 10 s; in later calls likewise.
    """

    def __init__(
        self, url: str, *, name: str = "default", max_concurrent: int | None = None, lease: float | None = None, end_process: bool = False
    ) -> None:
        self.name = keys.pool_name(name)
        self._prefix = keys.semaphore_prefix(name)
        default = PoolSettings()
        self._settings = PoolSettings(
            max_concurrent=default.max_concurrent if max_concurrent is None else max_concurrent,
            lease=default.lease if lease is None else lease,
        )
        self._url, self._end_process = url, end_process
        self._gateway = Gateway(url)
        self._by = f"{socket.gethostname()}:{os.getpid()}"
        self._keeper: PermitKeeper | None = None
        self._line: PermitLine | None = None
        self._scheduled: set[asyncio.Task[Any]] = set()

    def __repr__(self) -> str:
        return f"<Semaphore {self.name!r} at {self._gateway.where}, {'open' if self._line else 'not open'}>"

    async def start(self) -> None:
        """Create the semaphore if it does not exist, and start to renew what will be held; a second call does nothing."""
        if self._line is not None:
            return
        switch = DeadMansSwitch() if self._end_process else None
        try:
            await self._gateway(calls.create(self._prefix, self._settings.stored(), self._by))
            times = LeaseTimes((await self._gateway(keep(self._prefix, ()))).lease)
        except BaseException:
            await self._gateway.close()
            raise
        self._keeper = PermitKeeper(self._url, self._prefix, times, switch)
        self._line = PermitLine(self._gateway, self._prefix, self.name, times, self._keeper)
        self._keeper.start()
        self._line.start()

    async def close(self) -> None:
        """Stop what was scheduled here, turn away those who wait here (`SemaphoreClosed`), give back what they had.

        A permit whose block is still open then is renewed no more and comes back when its lease runs out.
        """
        line, keeper, self._line, self._keeper = self._line, self._keeper, None, None
        for task in self._scheduled:
            task.cancel()
        if self._scheduled:
            await asyncio.wait(self._scheduled)
        if line is not None and keeper is not None:
            await line.stop()
            await asyncio.to_thread(keeper.stop)
        await self._gateway.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            while kind is None and self._scheduled:
                await asyncio.wait(self._scheduled)
        finally:
            await self.close()

    @asynccontextmanager
    async def permit(self, *, timeout: float | None = None) -> AsyncGenerator[Permit]:
        """A block that runs under a permit: it waits its turn, in the order in which permits were asked for, and gives it back at the end.

        A free permit for which nobody waits costs one round trip. Whoever is cancelled or times out while it waits leaves the line at
        once, and gives back what was granted in the same moment (L13). The permit is given back, and the next in line has it, when
        the block is left, however it is left.

        Args:
            timeout: seconds to wait for the permit, 0 for "only if it is free now"; None waits for ever. It bounds the wait in the
                line, neither the block nor a call to a server that does not answer.

        Raises:
            TimeoutError: no permit came free in that time.
            PermitCleared: `clear()` turned away those who waited.
            PermitLost: at a normal end of the block, if the lease had run out before: somebody else may have run beside it. An error
                of the block itself goes first. `Permit.lost` tells it earlier, inside the block (L15).
            SemaphoreClosed: this `Semaphore` is not open, or was closed meanwhile.
            RedisUnreachable: the server does not answer. At the end of the block it means that the permit comes back by its lease.
        """
        line = self._opened()
        if timeout is not None:
            timeout = settings.seconds("timeout", timeout, 0, LONGEST_TIMEOUT)
        permit = await line.wait(line.enter(), timeout)
        try:
            yield permit
        except BaseException:
            await line.drop(permit)
            raise
        await line.give_back(permit)
        if permit.lost:
            raise PermitLost(self.name)

    async def schedule(self, work: Callable[[], Coroutine[Any, Any, T]] | Coroutine[Any, Any, T]) -> Scheduled[T]:
        """Run `work` as a task of this event loop as soon as it gets a permit; returns when it stands in line, or has its permit.

        With a free permit and nobody waiting, it is granted already when this returns (L1). Await the handle for the work's value, or
        for the same failure (L5). Work that never gets its turn is never started.

        Args:
            work: a coroutine function without arguments, or a coroutine; it is closed if it does not get to run.

        Raises:
            SemaphoreClosed: this `Semaphore` is not open.
            RedisUnreachable: the server does not answer; nothing was scheduled.
        """
        line = self._opened()
        handle = Scheduled(line, work)
        await handle.enter()
        task = handle.begin()
        self._scheduled.add(task)
        task.add_done_callback(self._scheduled.discard)
        return handle

    async def set_max_concurrent(self, max_concurrent: int) -> int:
        """Change the limit, for everyone and for good; returns the limit before.

        Raised, it admits exactly those who now may, at once (L7). Lowered below the number held, it stops nobody, and admits nobody
        until enough have ended (L8).

        Args:
            max_concurrent: an integer 0..1 000 000; 0 holds everyone. Anything else is `InvalidArgument`, never clamped (L9).
        """
        self._opened()
        limit = settings.max_concurrent(max_concurrent)
        before, more = await self._gateway(calls.permit_limit(self._prefix, limit, self._by))
        while more:
            _, more = await self._gateway(calls.permit_limit(self._prefix, limit, self._by))
        return before

    async def clear(self) -> int:
        """Turn away all who wait, in every process, with `PermitCleared`; returns how many (L10). Those who hold a permit go on."""
        self._opened()
        cleared, more = 0, True
        while more:
            count, more = await self._gateway(calls.permit_clear(self._prefix, CLEAR_BUDGET))
            cleared += count
        return cleared

    async def statistics(self, permit_id: str | None = None) -> SemaphoreStatistics:
        """The semaphore as it stands now, in the whole fleet (L14).

        Args:
            permit_id: the id of a permit or of a handle; its `position` in the line counts from 1, None if it does not wait.
        """
        self._opened()
        reply = await self._gateway(calls.permit_statistics(self._prefix, permit_id or ""))
        limit, held, waiting = (reply.number(at) for at in range(3))
        oldest, position = reply.text(3), reply.text(4)
        return SemaphoreStatistics(
            limit=limit,
            held=held,
            waiting=waiting,
            oldest_wait_s=int(oldest) / 1000 if oldest else None,
            position=int(position) if position else None,
        )

    def _opened(self) -> PermitLine:
        if self._line is None:
            raise SemaphoreClosed(self.name)
        return self._line
