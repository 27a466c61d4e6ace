"""The arq worker of a process, made event-driven: it blocks for work instead of polling, and claims in batches.

It keeps arq's queue, its job format and its place in an application, and replaces what cannot hold our promises: the scan of running
jobs at the head of the queue, arq's own redelivery, and a main loop that ends at the first lost connection.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import Sequence
from typing import Any

from arq.connections import ArqRedis
from arq.worker import Function, Worker, func
from redis.asyncio import BlockingConnectionPool

from subagents import keys
from subagents.errors import InfrastructureError
from subagents.scripts.wakes import wait_for_wake
from subagents_worker.runtime import Runtime

log = logging.getLogger(__name__)

JOB_TIMEOUT = 30 * 86400
"""Never None: arq then takes a live job for a dead one after ten seconds and starts it twice."""
BLOCK_FOR = 2
"""Seconds for which an idle worker blocks; a lost wake-up costs no more than this."""

for _name in ("main", "_poll_iteration", "close", "handle_sig"):
    if not hasattr(Worker, _name):
        raise ImportError(f"this release of arq has no Worker.{_name}; subagents is tested with arq 0.28")


def encode(job: dict[str, Any]) -> bytes:
    """A job as arq stores it here: JSON, never pickle."""
    return json.dumps(job, separators=(",", ":")).encode()


def decode(stored: bytes) -> dict[str, Any]:
    """The job that `encode` wrote."""
    job: dict[str, Any] = json.loads(stored)
    return job


async def run_agent(ctx: dict[Any, Any], agent_id: str, token: str) -> None:
    """The one job function: runs the agent that a job names. Any arq worker with a started `runtime` in its context can run it."""
    runtime: Runtime = ctx["runtime"]
    await runtime.run_delivered(agent_id, token)


def arq_settings(url: str, pool: str, type: str, slots: int) -> dict[str, Any]:
    """What every arq worker of a pool is made with, ours and a stock one. arq is the carrier: redelivery, results and retries are ours."""
    queue = keys.arq_queue(pool, type)
    functions: Sequence[Function] = [func(run_agent, name="run_agent", timeout=JOB_TIMEOUT, max_tries=1, keep_result=0)]
    connections: BlockingConnectionPool = BlockingConnectionPool.from_url(url, max_connections=slots + 4, timeout=30)  # pyright: ignore[reportUnknownMemberType]
    return {
        "functions": functions,
        "queue_name": queue,
        "redis_pool": ArqRedis(connections, job_serializer=encode, job_deserializer=decode, default_queue_name=queue),
        "job_serializer": encode,
        "job_deserializer": decode,
        "max_jobs": slots,
        "queue_read_limit": max(slots * 5, 1000),
        "job_timeout": JOB_TIMEOUT,
        "keep_result": 0,
        "max_tries": 1,
        "retry_jobs": False,
        "allow_abort_jobs": False,
        "log_results": False,
        "handle_signals": False,
        "health_check_interval": 3600,
        "health_check_key": f"{queue}:health:{keys.new_id()[:8]}",
    }


class AgentWorker(Worker):
    """An arq worker that claims the agents of every type it serves, lowest admission number first, up to its free slots."""

    def __init__(self, runtime: Runtime, url: str) -> None:
        super().__init__(**arq_settings(url, runtime.pool.name, runtime.registry.names[0], runtime.slots), poll_delay=0)
        self.runtime = runtime
        self.ctx["runtime"] = runtime
        self._slot_freed = asyncio.Event()
        runtime.runs.on_change = self._slot_freed.set
        self._ending = asyncio.Event()

    async def main(self) -> None:
        """Claim until told to stop; no error of the server ends it."""
        while not self._ending.is_set():
            await self._poll_iteration()

    async def _poll_iteration(self) -> None:
        """Claim what fits, or block until there is something to claim."""
        try:
            self._slot_freed.clear()
            free = self.runtime.free
            if free <= 0:
                await self._first_of(self._slot_freed.wait())
            elif await self.runtime.claim(free) == 0:
                await self._first_of(
                    wait_for_wake(self.runtime.pool.gateway, self.runtime.pool.prefix, self.runtime.registry.names, BLOCK_FOR)
                )
        except InfrastructureError as failure:
            log.warning("%s cannot claim: %s", self.runtime.worker, failure)
            await self._first_of(asyncio.sleep(random.uniform(0.2, 0.6)))

    async def _first_of(self, waiting: Any) -> None:
        """Wait for it, or until told to stop."""
        task = asyncio.ensure_future(waiting)
        ending = asyncio.ensure_future(self._ending.wait())
        try:
            await asyncio.wait({task, ending}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ending.cancel()
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
        if not task.cancelled():
            task.result()

    def claim_no_more(self) -> None:
        """End the main loop; runs go on."""
        self.allow_pick_jobs = False
        self._ending.set()

    async def close(self) -> None:
        """Close arq's own connections; the runs belong to the runtime."""
        await self.pool.aclose()
        await self.pool.connection_pool.disconnect()  # pyright: ignore[reportGeneralTypeIssues] mistyped by redis-py
