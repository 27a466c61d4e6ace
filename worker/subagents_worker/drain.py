"""A worker process that is told to go: takes nothing new, lets its agents end, hands back what may be rerun, and goes (P15)."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from subagents.errors import InfrastructureError
from subagents_worker.arq_worker import AgentWorker
from subagents_worker.runtime import Runtime
from subagents_worker.settlement import Cause

log = logging.getLogger(__name__)

SAY_WITHIN = 2.0
"""Seconds for what must be said to the server before the waiting begins; without an answer, leases settle it."""


async def drain(
    worker: AgentWorker, runtime: Runtime, claims: asyncio.Task[None], *, timeout: float, grace: float, now: asyncio.Event
) -> int:
    """Wait up to `timeout` seconds for the agents to end, then tell them to; they have `grace` seconds for that.

    `claims` is the worker's main loop, which ends with the call under way: a claim in flight, or one whose answer was lost, still brings
    agents that are this process's to run or to hand back. `now` cuts the waiting short (a second signal). Returns the number of agents
    that would not go; their process must end.
    """
    worker.claim_no_more()
    await claims
    try:
        async with asyncio.timeout(SAY_WITHIN):
            await runtime.claim_unanswered()
            await runtime.serve_no_more()
    except (InfrastructureError, TimeoutError) as failure:
        log.warning("%s could not say that it takes nothing new: %s", runtime.worker, failure)
    await _until_empty(runtime, timeout, now)
    if runtime.tasks:
        log.warning("%s hands back or settles %d agents: its drain time is over", runtime.worker, len(runtime.tasks))
        runtime.runs.stop_all(Cause.SHUTDOWN)
        await _until_empty(runtime, grace, None)
    return len(runtime.tasks)


async def _until_empty(runtime: Runtime, timeout: float, now: asyncio.Event | None) -> None:
    """Wait until no run is left, up to `timeout` seconds, or until `now`."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    hurry = asyncio.ensure_future(now.wait()) if now is not None else None
    try:
        while runtime.tasks and loop.time() < deadline and not (hurry is not None and hurry.done()):
            waiting: list[asyncio.Future[Any]] = [*runtime.tasks, *([hurry] if hurry is not None else [])]
            await asyncio.wait(waiting, timeout=deadline - loop.time(), return_when=asyncio.FIRST_COMPLETED)
    finally:
        if hurry is not None:
            hurry.cancel()
