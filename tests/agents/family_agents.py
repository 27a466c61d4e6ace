"""Parents and children, and the agents of `probe_agents` beside them. Each marks when its own code runs: not while it waits for a child."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from agents import probe_agents
from agents.probe_agents import probed
from subagents import CallerError, ParentStopped, SpawnRequest, TooDeep
from subagents_worker import AgentContext, agent
from support.probe import mark

__all__ = ["probe_agents"]


class Stretches:
    """The stretches in which a parent's own code runs, each a run of its own in the probe log."""

    def __init__(self, ctx: AgentContext) -> None:
        self._ctx, self._number = ctx, 0

    def begin(self) -> None:
        mark("begin", self._ctx.id, f"{self._ctx.token}-{self._number}")

    def end(self) -> None:
        mark("end", self._ctx.id, f"{self._ctx.token}-{self._number}")
        self._number += 1

    @asynccontextmanager
    async def away(self) -> AsyncGenerator[None]:
        """Its code does not run in this block: it waits."""
        self.end()
        try:
            yield
        finally:
            self.begin()


@asynccontextmanager
async def stretches(ctx: AgentContext) -> AsyncGenerator[Stretches]:
    own = Stretches(ctx)
    own.begin()
    try:
        yield own
    finally:
        own.end()


@agent("parent")
async def parent(ctx: AgentContext, seconds: float = 0.0, child: str = "nap", options: dict[str, Any] | None = None) -> dict[str, Any]:
    """Awaits one child."""
    async with stretches(ctx) as own:
        handle = await ctx.spawn(child, {"seconds": seconds}, **(options or {}))
        await ctx.emit("child", id=handle.id)
        async with own.away():
            record = await handle.wait()
        return {"child": handle.id, "status": record.status}


@agent("parent_of_many")
async def parent_of_many(ctx: AgentContext, count: int, seconds: float = 0.0) -> dict[str, Any]:
    async with stretches(ctx) as own:
        handles = await ctx.spawn_many([SpawnRequest(type="nap", input={"seconds": seconds}) for _ in range(count)])
        async with own.away():
            records = await ctx.wait_all(handles)
        return {"children": [record.id for record in records], "statuses": [record.status for record in records]}


@agent("impatient")
async def impatient(ctx: AgentContext, seconds: float, patience: float, own_timeout: bool = False) -> str:
    """Awaits its child only for so long, and works a little afterwards."""
    async with stretches(ctx) as own:
        child = await ctx.spawn("nap", {"seconds": seconds})
        answer = "in time"
        async with own.away():
            if own_timeout:
                answer = (await child.wait(patience)).status
            else:
                try:
                    async with asyncio.timeout(patience):
                        await child.wait()
                except TimeoutError:
                    answer = "timed out"
        await asyncio.sleep(0.2)
        return answer


@agent("pool_runner")
async def pool_runner(ctx: AgentContext, seconds: float = 0.0) -> str:
    """Runs a child through the pool, as any service would."""
    async with stretches(ctx) as own:
        async with own.away():
            record = await ctx.pool.run("nap", {"seconds": seconds})
        return f"{record.parent_id == ctx.id} {record.status}"


@agent("last_wish")
async def last_wish(ctx: AgentContext) -> str:
    """Tries to spawn when it was told to stop."""
    async with probed(ctx):
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            try:
                await ctx.spawn("nap", {"seconds": 60})
            except ParentStopped as refused:
                return f"refused: {refused.parent_id == ctx.id}"
            return "spawned"
        return "not stopped"


@agent("digger")
async def digger(ctx: AgentContext) -> list[str]:
    """Goes down until it is refused, and brings back the path that the refusal told."""
    async with stretches(ctx) as own:
        try:
            child = await ctx.spawn("digger")
        except TooDeep as refused:
            return [str(refused.max_depth), *refused.path]
        async with own.away():
            path: list[str] = await child.result()
        return path


@agent("side_waits")
async def side_waits(ctx: AgentContext) -> dict[str, str]:
    """Waits for a child in every way that is refused."""
    async with stretches(ctx):
        child = await ctx.spawn("nap")
        said: dict[str, str] = {}
        ways: dict[str, Callable[[], Coroutine[Any, Any, object]]] = {
            "wait": child.wait,
            "result": child.result,
            "wait_all": lambda: ctx.wait_all([child]),
        }
        for name, way in ways.items():
            try:
                await asyncio.create_task(way())
            except CallerError as refused:
                said[name] = str(refused)
        return said


@agent("cleaner")
async def cleaner(ctx: AgentContext, seconds: float) -> None:
    """Its clean-up takes a while when it is stopped as it waits for its child."""
    mark("begin", ctx.id, ctx.token)
    child = await ctx.spawn("nap", {"seconds": 60})
    await ctx.emit("child", id=child.id)
    mark("end", ctx.id, ctx.token)
    try:
        await child.wait()
    finally:
        mark("cleaning", ctx.id, ctx.token)
        await asyncio.sleep(seconds)
        mark("clean", ctx.id, ctx.token)


@agent("leaver")
async def leaver(ctx: AgentContext) -> str:
    """Ends without waiting for its child."""
    async with probed(ctx):
        return (await ctx.spawn("nap", {"seconds": 0.2})).id
