"""A worker played by a test, one script call at a time: it decides what happens between two calls."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import cast

from subagents import AgentHandle, Pool, Status
from subagents.keys import new_id, nonce
from subagents.scripts import calls
from subagents.scripts.calls import Renewed, Settlement, Spec
from subagents.scripts.replies import Code, Reply
from subagents.statuses import Outcome


class ManualWorker:
    """Runs nothing; it claims, renews and reports as it is told."""

    def __init__(self, pool: Pool, *types: str) -> None:
        self.pool, self.types = pool, types or ("played",)
        self.name = f"manual-{new_id()[:6]}"

    async def join(self) -> None:
        await self.pool.gateway(calls.join(self.pool.prefix, self.name, "{}", dict.fromkeys(self.types, "{}")))

    async def leave(self) -> None:
        await self.pool.gateway(calls.leave(self.pool.prefix, self.name, gone=True))

    async def claim(self, free: int = 1) -> tuple[Spec, ...]:
        return (await self.pool.gateway(calls.claim(self.pool.prefix, self.name, free, self.types, nonce()))).specs

    async def start(self, agent_id: str, token: str) -> Reply:
        """The start of one agent, with its whole answer."""
        call = calls.start(self.pool.prefix, agent_id, token, self.name)
        return await self.pool.gateway(calls.Call(call.script, call.prefix, call.args, lambda reply: reply))

    async def lend(self, spec: Spec) -> Code:
        return await self.pool.gateway(calls.lend(self.pool.prefix, spec.id, spec.token))

    async def take_back(self, spec: Spec) -> Code:
        return await self.pool.gateway(calls.take_back(self.pool.prefix, spec.id, spec.token))

    async def renew(self, *specs: Spec, housekeeping: int = 0) -> Renewed:
        held = [(spec.id, spec.token) for spec in specs]
        return await self.pool.gateway(calls.renew(self.pool.prefix, self.name, held, housekeeping))

    async def finish(self, spec: Spec, outcome: Outcome, result: str = "", token: str | None = None) -> Reply:
        kind, error = ("agent_error", "played") if outcome is Outcome.ERROR else ("", "")
        settlement = Settlement(spec.id, spec.token if token is None else token, outcome, kind, error, result)
        return (await self.pool.gateway(calls.finish(self.pool.prefix, [settlement])))[0]

    async def lose(self) -> None:
        """Its supervisor reports it dead."""
        while await self.pool.gateway(calls.lose(self.pool.prefix, self.name, 10)):
            continue


async def stored(pool: Pool, handle: AgentHandle) -> dict[str, str]:
    """The record as it is stored, which may be behind what readers see."""
    return await cast("Awaitable[dict[str, str]]", pool.gateway.redis.hgetall(f"{pool.prefix}agent:{handle.id}"))


async def stored_status(pool: Pool, handle: AgentHandle) -> Status | None:
    """The status in the stored record; None before the agent was spawned."""
    fields = await stored(pool, handle)
    return Status(fields["status"]) if fields else None


class PlayedClock:
    """The pool's time, set by the test: `real` ms of the server's own clock at first, moved by hand from then on."""

    def __init__(self, pool: Pool) -> None:
        self.pool, self.raw = pool, 0

    async def stop(self) -> None:
        """Take the clock over; it stands still from now on."""
        clock = await cast("Awaitable[dict[str, str]]", self.pool.gateway.redis.hgetall(f"{self.pool.prefix}clock"))
        self.raw = int(clock["raw"])
        await self._set()

    async def move(self, milliseconds: int) -> None:
        """Move it, also backwards; the next script call sees it."""
        self.raw += milliseconds
        await self._set()

    async def pass_leases(self, lease: float) -> None:
        """Let every lease run out, in steps that pool time follows."""
        for _ in range(7):
            await self.move(int(lease * 1000 / 6))
            await self.pool.stats()

    async def _set(self) -> None:
        await cast("Awaitable[int]", self.pool.gateway.redis.hset(f"{self.pool.prefix}config", "test_now", str(self.raw)))
