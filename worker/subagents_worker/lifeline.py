"""The lifeline: a thread outside the event loop that keeps this process's leases and hears what its agents are told.

A loop that agent code blocks keeps its leases all the same, and a stop is heard at once. Each renewal also answers, for every agent,
whether it was told to stop, so an interrupt whose message was lost arrives with the next one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from redis.exceptions import RedisError

from subagents.errors import InfrastructureError, SubagentsError
from subagents.scripts import calls
from subagents.scripts.gateway import ThreadGateway
from subagents_worker.runs import Run, Runs
from subagents_worker.trust import Trust

log = logging.getLogger(__name__)

CHUNK = 500
HOUSEKEEPING = 10
CANARY_EVERY, CANARY_LOST = 1.0, 3.0
ESCALATED = 75
"""Exit code of a process whose agents did not respond to a stop."""


class Lifeline:
    """Renews, listens and escalates for one worker process.

    Args:
        url, prefix: the pool.
        worker: this process's name in the pool.
        rejoin: the call that introduces this process again when the pool has forgotten it; None once it takes nothing new.
        hold_claim: the call that keeps the leases of a claim whose answer the loop has not read; None if there is none.
        grace: seconds after which agents that do not respond to a stop cost their process its life.
    """

    def __init__(
        self,
        url: str,
        prefix: str,
        worker: str,
        runs: Runs,
        trust: Trust,
        grace: float,
        rejoin: Callable[[], calls.Call[calls.Renewed] | None],
        hold_claim: Callable[[], calls.Call[calls.Claimed] | None],
    ) -> None:
        self._gateway = ThreadGateway(url, socket_timeout=max(trust.times.renew_every, 0.1))
        self._prefix, self._worker, self._runs, self._trust = prefix, worker, runs, trust
        self._grace, self._rejoin, self._hold_claim = grace, rejoin, hold_claim
        self._every = trust.times.renew_every
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._ending = threading.Event()
        self._pubsub: Any = None
        self._heard_at = self._pinged_at = 0.0
        self._failing_since: float | None = None

    def __repr__(self) -> str:
        state = "not started" if self._thread is None else "failing" if self._failing_since else "renewing"
        return f"<Lifeline of {self._worker}, {state}>"

    def start(self) -> None:
        """Begin to renew and to listen; called in the event loop."""
        if self._thread is None:
            self._loop = asyncio.get_running_loop()
            self._ending.clear()
            self._thread = threading.Thread(target=self._keep, name="subagents-lifeline", daemon=True)
            self._thread.start()

    async def stop(self) -> None:
        """Renew no more; the thread is out within about one renewal."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._ending.set()
            await asyncio.to_thread(thread.join, 5)
        self._gateway.close()

    def _keep(self) -> None:
        due = time.monotonic()
        while not self._ending.is_set():
            self._trust.give_up_old()
            if time.monotonic() >= due:
                due = time.monotonic() + (self._every if self._renew() else self._every / 4)
                self._escalate()
            if self._listen(until=due):
                due = time.monotonic()

    def _renew(self) -> bool:
        """Renew every lease; False if that did not work out."""
        held = self._runs.snapshot()
        sent_at = time.monotonic()
        try:
            known = self._renew_chunk(held[:CHUNK], HOUSEKEEPING)
            for at in range(CHUNK, len(held), CHUNK):
                self._renew_chunk(held[at : at + CHUNK], 0)
            self._trust.renewed(held, sent_at)
            if (claim := self._hold_claim()) is not None:
                self._gateway(claim)
            if not known and (introduction := self._rejoin()) is not None:
                self._gateway(introduction)
        except SubagentsError as failure:
            self._report_failure(failure)
            return False
        self._failing_since = None
        return True

    def _renew_chunk(self, chunk: list[Run], housekeeping: int) -> bool:
        pairs = [(run.spec.id, run.spec.token) for run in chunk]
        renewed = self._gateway(calls.renew(self._prefix, self._worker, pairs, housekeeping))
        self._in_loop(self._answered, chunk, renewed.codes)
        return renewed.known

    def _answered(self, chunk: list[Run], codes: tuple[str, ...]) -> None:
        for run, code in zip(chunk, codes, strict=True):
            self._runs.answered(run, code)

    def _report_failure(self, failure: SubagentsError) -> None:
        """Once an outage, and again when the process is about to be ended by it."""
        now, left = time.monotonic(), self._trust.left
        if self._failing_since is None:
            self._failing_since = now
            level = logging.WARNING if isinstance(failure, InfrastructureError) else logging.ERROR
            log.log(level, "%s cannot renew its leases: %s", self._worker, failure)
        elif left is not None and left < self._every:
            log.error(
                "%s could not renew for %.1f s and ends in %.1f s, before its leases are void",
                self._worker,
                now - self._failing_since,
                left,
            )

    def _listen(self, until: float) -> bool:
        """Hear the control channel until then; True if it was joined anew, and cutoffs must be read again."""
        try:
            if self._pubsub is None:
                self._pubsub = self._gateway.redis.pubsub()  # type: ignore[no-untyped-call]
                self._pubsub.subscribe(f"{self._prefix}control")
                self._heard_at, self._pinged_at = time.monotonic(), 0.0
                return True
            while (now := time.monotonic()) < until and not self._ending.is_set():
                if now - self._heard_at > CANARY_LOST:
                    raise TimeoutError("the canary of the control channel did not come back")
                if now - self._pinged_at >= CANARY_EVERY:
                    self._pinged_at = now
                    self._pubsub.ping(b"canary")
                message = self._pubsub.get_message(timeout=min(until - now, CANARY_EVERY))
                if message is not None:
                    self._heard_at = time.monotonic()
                    if message["type"] == "message":
                        self._in_loop(self._runs.heard, cast("str", message["data"]))
        except (RedisError, OSError):
            self._drop_subscription()
            self._ending.wait(min(max(until - time.monotonic(), 0.02), 0.1))
        return False

    def _drop_subscription(self) -> None:
        pubsub, self._pubsub = self._pubsub, None
        if pubsub is not None:
            with suppress(RedisError, OSError):
                pubsub.close()

    def _escalate(self) -> None:
        """The last step of the stop ladder: agents that ignore a stop cost their process its life, unless bystanders run in it."""
        runs = [run for run in self._runs.snapshot() if run.code_runs]
        now = time.monotonic()
        late = [run for run in runs if run.told_at is not None and now - run.told_at > self._grace]
        if late and (all(run.told_at is not None for run in runs) or any(run.kill for run in late)):
            names = ", ".join(run.spec.id for run in late[:5])
            log.error("%s ends: %d agents did not stop within %.1f s: %s", self._worker, len(late), self._grace, names)
            os._exit(ESCALATED)

    def _in_loop(self, callback: Callable[..., None], *args: object) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: the process is on its way out
                self._loop.call_soon_threadsafe(callback, *args)
