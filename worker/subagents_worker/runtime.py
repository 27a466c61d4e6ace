"""Everything that one worker process needs to run agents, however they are delivered to it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import platform
import socket
import time
from contextlib import suppress

from subagents import keys
from subagents.errors import CallerError, PoolNotFound, RedisUnreachable
from subagents.pool import Pool
from subagents.scripts import calls
from subagents.scripts.replies import Code
from subagents_worker.lifeline import Lifeline
from subagents_worker.registry import Registry
from subagents_worker.runner import Runner
from subagents_worker.runs import Runs
from subagents_worker.settlement import Cause
from subagents_worker.settler import Settler
from subagents_worker.trust import Trust

log = logging.getLogger(__name__)

START_AGAIN_EVERY = 0.3
LOOK_AGAIN_EVERY = 0.25
PATIENCE = 3600.0
"""Seconds for which a worker's calls are tried again: it outlives any restart of the server; the switch bounds what may run meanwhile."""


def new_worker_name() -> str:
    """A name for a worker process, never used before."""
    host = "".join(c if c.isalnum() or c in "-." else "-" for c in socket.gethostname())[:24]
    return f"{host}-{os.getpid()}-{keys.new_id()[:8]}"


class Runtime:
    """One worker process in one pool: introduces itself, keeps its leases, starts and runs agents, and takes its leave."""

    def __init__(self, url: str, pool: str, registry: Registry, *, slots: int, grace: float, worker: str | None = None) -> None:
        self.worker = worker or new_worker_name()
        self.registry, self.slots = registry, slots
        self.runs = Runs()
        self.tasks: set[asyncio.Task[None]] = set()
        self._url, self._grace = url, grace
        self.pool = Pool(url, name=pool, by=self.worker, patience=PATIENCE)
        self.draining = False
        self._unanswered: str | None = None
        self._lifeline: Lifeline | None = None
        self._runner: Runner | None = None
        self._settler = Settler(self.pool.gateway, self.pool.prefix)
        self._trust: Trust | None = None

    def __repr__(self) -> str:
        return f"<Runtime {self.worker}, {self.runs!r}>"

    @property
    def free(self) -> int:
        """Slots that are free now."""
        return self.slots - self.runs.occupied

    async def start(self) -> None:
        """Introduce this worker to the pool, and begin to keep leases.

        A worker has no opinion on a pool's settings, so it does not make the pool: it waits until a service or a scheduler has.
        """
        if self._lifeline is not None:
            return
        joined = await self._join()
        log.info("%s serves pool %r: %s (%d slots)", self.worker, self.pool.name, ", ".join(self.registry.names), self.slots)
        self._trust = Trust(joined.lease)
        self._runner = Runner(self.pool, self.registry, self.runs, self._trust, self._settler, self._grace)
        self._lifeline = Lifeline(
            self._url, self.pool.prefix, self.worker, self.runs, self._trust, self._grace, self._reintroduction, self._claim_held
        )
        self._lifeline.start()

    async def _join(self) -> calls.Renewed:
        waiting = False
        while True:
            try:
                return await self.pool.gateway(self._introduction())
            except PoolNotFound:
                if not waiting:
                    log.info("%s waits for pool %r to be made by a service or a scheduler", self.worker, self.pool.name)
                waiting = True
                await asyncio.sleep(LOOK_AGAIN_EVERY)

    async def stop(self) -> None:
        """Take leave of the pool. What still runs is not waited for."""
        lifeline, self._lifeline = self._lifeline, None
        if lifeline is None:
            return
        self.draining = True
        await lifeline.stop()
        await self._settler.stop()
        if not self.runs:
            self.pool.gateway.patience = 2.0
            await self.pool.gateway(calls.leave(self.pool.prefix, self.worker, gone=True))
        await self.pool.close()

    async def serve_no_more(self) -> None:
        """Take nothing new; agents of types that nobody else serves step aside (P15)."""
        self.draining = True
        await self.pool.gateway(calls.leave(self.pool.prefix, self.worker, gone=False))

    async def claim(self, free: int) -> int:
        """Start up to `free` agents here; returns how many.

        A claim that was not answered is repeated by the next call: it brings the same agents, under a lease that begins anew, which is
        safe because none of them has run yet. So a lost reply loses nothing, and an idle process outlives any outage.
        """
        trust, runner = self._started()
        nonce = self._unanswered = self._unanswered or keys.nonce()
        call = calls.claim(self.pool.prefix, self.worker, free, self.registry.names, nonce)
        while True:
            sent_at = time.monotonic()
            trust.ask(nonce, sent_at)
            try:
                claimed = await self.pool.gateway(call, patience=0)
                if trust.answered(nonce):
                    for spec in claimed.specs:
                        self._keep(runner.begin(spec, sent_at))
                    self._unanswered = None
                    return len(claimed.specs)
            finally:
                trust.end(nonce)

    async def claim_unanswered(self) -> None:
        """Start here what a claim whose answer was lost has brought, and nothing new."""
        if self._unanswered is not None:
            await self.claim(0)

    def _claim_held(self) -> calls.Call[calls.Claimed] | None:
        """What keeps the leases of a claim whose answer nobody reads because agent code blocks the loop; it takes nothing new."""
        nonce, trust = self._unanswered, self._trust
        if nonce is None or trust is None or not trust.gave_up(nonce):
            return None
        return calls.claim(self.pool.prefix, self.worker, 0, self.registry.names, nonce)

    async def run_delivered(self, agent_id: str, token: str) -> None:
        """Start one agent that a stock arq worker delivered, and return when it has settled; a stale delivery is dropped.

        When that worker cancels its job, the agent is handed back, and its code is out before this returns.
        """
        running = await self._start_delivered(agent_id, token)
        if running is None:
            return
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            self.runs.stop(agent_id, Cause.SHUTDOWN)
            while not running.done():  # a second cancellation must not cut off the settlement
                with suppress(asyncio.CancelledError):
                    await asyncio.wait({running})
            raise

    async def _start_delivered(self, agent_id: str, token: str) -> asyncio.Task[None] | None:
        trust, runner = self._started()
        while not self.runs.holds(agent_id):
            sent_at = time.monotonic()
            trust.ask(token, sent_at)
            try:
                started = await self.pool.gateway(calls.start(self.pool.prefix, agent_id, token, self.worker), patience=0)
                if not trust.answered(token):
                    continue
                return None if isinstance(started, Code) else self._keep(runner.begin(started.specs[0], sent_at))
            except RedisUnreachable as failure:
                log.warning("agent %s cannot be started yet: %s", agent_id, failure)
            finally:
                trust.end(token)
            await asyncio.sleep(START_AGAIN_EVERY)
        return None

    def _started(self) -> tuple[Trust, Runner]:
        if self._trust is None or self._runner is None:
            raise CallerError(f"{self!r} is not started")
        return self._trust, self._runner

    def _keep(self, task: asyncio.Task[None]) -> asyncio.Task[None]:
        self.tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            log.error("a run was not settled; its lease will run out: %s", failure, exc_info=failure)

    def _introduction(self) -> calls.Call[calls.Renewed]:
        facts = {"host": socket.gethostname(), "pid": os.getpid(), "slots": self.slots, "python": platform.python_version()}
        return calls.join(self.pool.prefix, self.worker, json.dumps(facts), self.registry.descriptions())

    def _reintroduction(self) -> calls.Call[calls.Renewed] | None:
        return None if self.draining else self._introduction()
