"""An agent type of another worker."""

from __future__ import annotations

import asyncio

from subagents_worker import AgentContext, agent
from support.probe import mark


@agent("other")
async def other(ctx: AgentContext, seconds: float = 0.0) -> str:
    mark("begin", ctx.id, ctx.token)
    try:
        await asyncio.sleep(seconds)
        return "other"
    finally:
        mark("end", ctx.id, ctx.token)
