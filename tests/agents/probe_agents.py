"""Agents for the tests: each marks in the probe log when its code really begins and ends."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from subagents_worker import AgentContext, agent
from support.probe import mark


@asynccontextmanager
async def probed(ctx: AgentContext) -> AsyncGenerator[None]:
    mark("begin", ctx.id, ctx.token)
    try:
        yield
    finally:
        mark("end", ctx.id, ctx.token)


@agent("echo")
async def echo(ctx: AgentContext, value: Any = None) -> Any:
    async with probed(ctx):
        return value


@agent("nap")
async def nap(ctx: AgentContext, seconds: float = 0.0) -> float:
    async with probed(ctx):
        await asyncio.sleep(seconds)
        return seconds


@agent("fail")
async def fail(ctx: AgentContext, text: str = "it failed") -> None:
    async with probed(ctx):
        raise RuntimeError(text)


@agent("talk")
async def talk(ctx: AgentContext, lines: int = 3, seconds: float = 0.0) -> int:
    async with probed(ctx):
        for number in range(lines):
            await ctx.emit("progress", done=number + 1, total=lines)
        await asyncio.sleep(seconds)
        return lines


@agent("stubborn")
async def stubborn(ctx: AgentContext, seconds: float) -> str:
    """Ignores every cancellation for that long."""
    async with probed(ctx):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                await asyncio.sleep(until - time.monotonic())
            except asyncio.CancelledError:
                mark("swallowed", ctx.id, ctx.token)
        return "out at last"


@agent("chain")
async def chain(ctx: AgentContext, depth: int) -> int:
    mark("begin", ctx.id, f"{ctx.token}-{0}")
    if depth == 0:
        mark("end", ctx.id, f"{ctx.token}-{0}")
        return 0
    child = await ctx.spawn("chain", {"depth": depth - 1})
    mark("end", ctx.id, f"{ctx.token}-{0}")
    below: int = await child.result()
    mark("begin", ctx.id, f"{ctx.token}-{1}")
    mark("end", ctx.id, f"{ctx.token}-{1}")
    return below + 1


@agent("side_wait")
async def side_wait(ctx: AgentContext) -> str:
    """Waits for a child from a task that is not the agent's own."""
    child = await ctx.spawn("echo", {"value": 1})
    try:
        await asyncio.create_task(child.wait())
    except Exception as refused:
        return str(refused)
    return "not refused"


@agent("unserialisable")
async def unserialisable(ctx: AgentContext) -> Any:
    async with probed(ctx):
        return (number for number in range(3))


@agent("huge")
async def huge(ctx: AgentContext, size: int) -> str:
    async with probed(ctx):
        return "x" * size


@agent("exit")
async def exit_process(ctx: AgentContext) -> None:
    async with probed(ctx):
        sys.exit(3)


@agent("die")
async def die(ctx: AgentContext) -> None:
    """Takes its whole process with it."""
    mark("begin", ctx.id, ctx.token)
    os._exit(9)


@agent("cancel_itself")
async def cancel_itself(ctx: AgentContext) -> None:
    async with probed(ctx):
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)


@agent("picky")
async def picky(ctx: AgentContext, count: int, name: str = "nobody") -> dict[str, Any]:
    async with probed(ctx):
        return {"count": count, "name": name}
