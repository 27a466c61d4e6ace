"""Agents under a stock `arq.Worker`: slower, and just as correct, because the permits and the leases are ours."""

from __future__ import annotations

import asyncio
from typing import Any

from subagents_worker.arq_worker import arq_settings
from subagents_worker.registry import Registry, default_registry
from subagents_worker.runtime import Runtime
from subagents_worker.settlement import Cause


def stock_worker_settings(
    url: str, *, pool: str = "default", type: str, registry: Registry = default_registry, slots: int = 10, grace: float = 10.0
) -> dict[str, Any]:
    """The arguments of a stock `arq.Worker` that serves one agent type (arq reads one queue a worker).

    Use: `arq.Worker(**stock_worker_settings(url, type="researcher"))`, made inside the running event loop.
    """
    only = registry.only(type)

    async def on_startup(ctx: dict[Any, Any]) -> None:
        runtime = Runtime(url, pool, only, slots=slots, grace=grace)
        await runtime.start()
        ctx["runtime"] = runtime

    async def on_shutdown(ctx: dict[Any, Any]) -> None:
        runtime: Runtime = ctx["runtime"]
        runtime.runs.stop_all(Cause.SHUTDOWN)  # arq has let go of jobs that it has cancelled twice
        if runtime.tasks:
            await asyncio.wait(runtime.tasks, timeout=grace)
        await runtime.stop()

    return {**arq_settings(url, pool, type, slots), "on_startup": on_startup, "on_shutdown": on_shutdown, "poll_delay": 0.05}
