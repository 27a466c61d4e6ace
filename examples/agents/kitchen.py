"""Agents for the examples."""

from __future__ import annotations

import asyncio

from subagents import SpawnRequest
from subagents_worker import AgentContext, agent


@agent("greet")
async def greet(ctx: AgentContext, name: str) -> str:
    return f"Hello, {name}!"


@agent("count")
async def count(ctx: AgentContext, upto: int) -> int:
    """Says each number, then returns the last."""
    for number in range(1, upto + 1):
        await ctx.emit("number", value=number)
    return upto


@agent("sleep")
async def sleep(ctx: AgentContext, seconds: float) -> float:
    await asyncio.sleep(seconds)
    return seconds


@agent("research")
async def research(ctx: AgentContext, topics: list[str]) -> dict[str, int]:
    """Spawns one agent for each topic and lends its own permit while it waits for them."""
    children = await ctx.spawn_many([SpawnRequest(type="read", input={"topic": topic}) for topic in topics])
    records = await ctx.wait_all(children)
    return {topic: record.result for topic, record in zip(topics, records, strict=True)}


@agent("read")
async def read(ctx: AgentContext, topic: str) -> int:
    return len(topic)
