"""What a scheduler does while it runs, round after round: ask for the lead; leading, do each duty that is due."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from subagents import keys
from subagents.scheduler.failures import Failures
from subagents.scheduler.housekeeping import Housekeeping
from subagents.scheduler.leader import Leadership
from subagents.scheduler.retention import Retention
from subagents.scripts.gateway import Gateway
from subagents.scripts.server import pool_max_step

log = logging.getLogger(__name__)

LONGEST_REST, SHORTEST_REST = 0.4, 0.002
STAND_BY = 0.6
"""A follower asks so often that it leads within the lead's lease and a second of its holder's death, with time to spare."""
PACE = 0.75
"""A round comes before pool time has used up this much of its longest step, so that leases run out in time when nobody else calls."""


class Duty(Protocol):
    """Something that the leader does; `do` does one bounded portion and tells whether there is more."""

    @property
    def name(self) -> str: ...
    @property
    def due(self) -> bool: ...
    async def do(self) -> bool: ...


class Rounds:
    """The rounds of one scheduler, from its start to its stop.

    Args:
        gateway, pool: whose duties are done.
        name: of the scheduler.
    """

    def __init__(self, gateway: Gateway, pool: str, name: str) -> None:
        self._gateway, self._prefix = gateway, keys.prefix(pool)
        self.leadership = Leadership(gateway, self._prefix, name)
        self.failures = Failures(f"{name} of pool {pool!r}")
        self.duties: Sequence[Duty] = (Housekeeping(gateway, self._prefix), Retention(gateway, self._prefix))
        self.last_at: float | None = None
        self._led_since: float | None = None
        self._rest = LONGEST_REST

    def __repr__(self) -> str:
        return f"<Rounds: {self.leadership!r}, {self.failures!r}>"

    async def keep(self, ending: asyncio.Event) -> None:
        """Go round until `ending` is set. No failure ends it, only cancellation does."""
        while not ending.is_set():
            rest = await self.go()
            with suppress(TimeoutError):
                await asyncio.wait_for(ending.wait(), rest)

    async def go(self) -> float:
        """One round; returns the seconds to rest before the next."""
        began, failing, more = time.monotonic(), self.failures.since is not None, False
        with self.failures.noted("leading"):
            if await self.leadership.ask():
                await self._learn_pace()
                more = await self._do_duties()
            else:
                self.failures.clear()
        self.failures.round_is_over(failing)
        if self.failures.since is not None:
            return self._rest
        if not self.leadership.leading:
            return STAND_BY
        # With more to do it rests as long as it has worked: the server's time is shared, and half of it is for others.
        return min(max(time.monotonic() - began, SHORTEST_REST), self._rest) if more else self._rest

    async def _do_duties(self) -> bool:
        more = False
        for duty in self.duties:
            if duty.due and self.leadership.leading:  # asked anew each time: this process may have been frozen in between
                with self.failures.noted(duty.name):
                    more = await duty.do() or more
                    self.last_at = time.monotonic()
        return more

    async def _learn_pace(self) -> None:
        """On taking the lead, and after a failure, learn from the pool how often pool time must be carried on."""
        taken = self._led_since != self.leadership.since
        if taken or self.failures.since is not None:
            longest_step = await pool_max_step(self._gateway, self._prefix)
            self._rest = min(LONGEST_REST, PACE * longest_step) if longest_step else LONGEST_REST
            self._led_since = self.leadership.since
        if taken:
            log.info("%r from now on", self.leadership)
