"""Renews everything that a `Semaphore` holds or waits with, from one daemon thread outside the event loop (L16).

A loop that is blocked by Python code therefore keeps its permits; code that holds the GIL for longer than a lease loses them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from subagents import keys
from subagents.deadman import DeadMansSwitch
from subagents.errors import InfrastructureError, RedisUnreachable
from subagents.permit import Permit, Place
from subagents.scripts.calls import Call
from subagents.scripts.gateway import ThreadGateway
from subagents.scripts.replies import Reply
from subagents.settings import LeaseTimes

BATCH = 100


@dataclass(frozen=True, slots=True)
class Kept:
    """What the server answered to a renewal of many: the lease in seconds, and one answer for each, in order."""

    lease: float
    answers: tuple[Reply, ...]


def keep(prefix: str, kept: Sequence[Permit | Place]) -> Call[Kept]:
    """Keep permits and places for another lease; for nobody, it tells the lease."""
    pairs = (text for each in kept for text in (each.id, each.token))
    return Call("permit_keep", prefix, (keys.nonce(), *pairs), lambda reply: Kept(reply.number(0) / 1000, reply.nested(1)))


class PermitKeeper:
    """One thread, one connection: a round every eighth of the lease or 2 s, a hundred in one call, held permits before places in line.

    A round is also what moves pool time on, by 2 s at most, so that the leases of others run out when they should.

    Args:
        switch: ends the process before a held permit's lease can have run out; None leaves it alive.
    """

    def __init__(self, url: str, prefix: str, times: LeaseTimes, switch: DeadMansSwitch | None) -> None:
        self._url, self._prefix, self._switch = url, prefix, switch
        self._period = min(times.renew_every, times.max_step)
        self._kept: dict[str, Permit | Place] = {}
        self._changed = threading.Condition()
        self._idle = self._hurried = self._stopping = False
        self._thread = threading.Thread(target=self._run, name="subagents-permit-keeper", daemon=True)

    def __repr__(self) -> str:
        return f"<PermitKeeper of {len(self._kept)}, {'running' if self._thread.is_alive() else 'not running'}>"

    def start(self) -> None:
        """Start the thread; it sleeps while there is nothing to keep."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and turn off the switch; blocks for as long as its last call takes, at most a period."""
        with self._changed:
            self._stopping = True
            self._kept.clear()
            self._set_switch()
            self._changed.notify()
        self._thread.join()

    def keep(self, kept: Permit | Place) -> None:
        """Renew from now on; a permit takes the entry of its place. With a switch, the process now lives by this permit's lease."""
        with self._changed:
            self._kept[kept.id] = kept
            self._set_switch()
            if self._idle:
                self._changed.notify()

    def drop(self, id: str) -> None:
        """Renew no more."""
        with self._changed:
            if self._kept.pop(id, None) is not None:
                self._set_switch()

    def hurry(self) -> None:
        """Begin a round now: messages may have been missed."""
        with self._changed:
            self._hurried = True
            self._changed.notify()

    def _run(self) -> None:
        with ThreadGateway(self._url, socket_timeout=self._period) as gateway:
            pause = self._period
            while self._due(pause):
                pause = self._period if self._renew_all(gateway) else self._period / 4

    def _due(self, pause: float) -> bool:
        """Wait until it is time for a round; False when it is time to go."""
        with self._changed:
            self._idle = True
            self._changed.wait_for(lambda: self._stopping or self._kept)
            self._idle = False
            self._changed.wait_for(lambda: self._stopping or self._hurried, timeout=pause)
            self._hurried = False
            return not self._stopping

    def _renew_all(self, gateway: ThreadGateway) -> bool:
        """One round; False if the server did not answer, which is for the leases to judge, not for this thread."""
        with self._changed:
            everything = sorted(self._kept.values(), key=lambda kept: not kept.token)
        for at in range(0, len(everything), BATCH):
            batch = everything[at : at + BATCH]
            sent = time.monotonic()
            try:
                answers = gateway(keep(self._prefix, batch)).answers
            except RedisUnreachable:
                return False
            except InfrastructureError:  # flushed, or no longer allowed: those who wait must hear of it
                for kept in everything:
                    if isinstance(kept, Place):
                        kept.look_again()
                return False
            self._hand_on(batch, answers, sent)
        return True

    def _hand_on(self, batch: Sequence[Permit | Place], answers: Sequence[Reply], sent: float) -> None:
        with self._changed:
            for kept, answer in zip(batch, answers, strict=True):
                if self._kept.get(kept.id) is kept:  # not given back or left meanwhile
                    kept.hear(answer, sent)
            self._set_switch()

    def _set_switch(self) -> None:
        if self._switch is None:
            return
        deadlines = [kept.trusted_until for kept in self._kept.values() if isinstance(kept, Permit)]
        if deadlines:
            self._switch.arm(min(deadlines))
        else:
            self._switch.disarm()
