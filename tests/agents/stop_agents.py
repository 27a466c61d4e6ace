"""Agents that leave in their own manner when they are stopped, and those of `family_agents` and `probe_agents` beside them."""

from __future__ import annotations

import asyncio

from agents import family_agents
from agents.probe_agents import probed
from subagents_worker import AgentContext, agent

__all__ = ["family_agents"]


@agent("last_words")
async def last_words(ctx: AgentContext, text: str) -> str:
    """Has a result to give although it was told to stop."""
    async with probed(ctx):
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return text
        return "not stopped"
