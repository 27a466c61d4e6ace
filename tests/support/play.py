"""One agent, and everything that can be done to it, call by call."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import cast

from subagents import AgentHandle, Pool, Status
from subagents.keys import new_id
from subagents.scripts import calls
from subagents.scripts.calls import Spec
from subagents.statuses import Outcome
from support.manual_worker import ManualWorker, PlayedClock, stored, stored_status

LEASE = 3.0


class Play:
    """One agent, and everything that can be done to it, call by call."""

    def __init__(self, pool: Pool) -> None:
        self.pool, self.worker = pool, ManualWorker(pool)
        self.handle = AgentHandle(pool, new_id())
        self.spec: Spec | None = None

    async def spawn(self) -> None:
        await self.worker.join()
        self.handle = await self.pool.spawn("played", retries=1)

    async def start(self) -> None:
        [self.spec] = await self.worker.claim()

    async def lend(self) -> None:
        await self.worker.lend(self.run)

    async def take_back(self) -> None:
        await self.worker.take_back(self.run)

    async def abort(self) -> None:
        await self.handle.abort()

    async def finish(self, outcome: Outcome) -> None:
        await self.worker.finish(self.run, outcome, result="1")

    async def lose_delivery(self) -> None:
        """No worker ever gets it: arq's job vanishes, as often as it is dispatched again."""
        clock = PlayedClock(self.pool)
        await clock.stop()
        while await stored_status(self.pool, self.handle) is Status.QUEUED:
            token = (await stored(self.pool, self.handle))["token"]
            await cast("Awaitable[int]", self.pool.gateway.redis.delete(f"arq:job:{{{self.pool.name}}}:{self.handle.id}:{token}"))
            await clock.pass_leases(LEASE)
            await self.worker.join()
            await self.pool.gateway(calls.reap(self.pool.prefix, 10))

    @property
    def run(self) -> Spec:
        """The run under way, or one that never was, for an agent that has not started."""
        if self.spec is not None:
            return self.spec
        return Spec(self.handle.id, "no token", "played", 0, "null", (), (), False, False, None, None, 1, 1, 0, None, "", None)

    async def reach(self, status: Status | None) -> None:
        """Bring it there by legal moves."""
        if status is None:
            await self.worker.join()
            return
        await self.spawn()
        if status is Status.QUEUED:
            return
        await self.start()
        match status:
            case Status.RUNNING:
                return
            case Status.WAITING:
                await self.lend()
            case Status.STOPPING:
                await self.abort()
            case Status.STOPPED:
                await self.abort()
                await self.finish(Outcome.STOPPED)
            case _:
                await self.finish(Outcome(status.value))
        assert await stored_status(self.pool, self.handle) is status

    async def clear(self) -> None:
        """Leave nothing behind."""
        await self.abort()
        if self.spec is not None:
            await self.finish(Outcome.STOPPED)
        await self.worker.leave()
        await self.pool.interrupt(force=True, wait=1)
