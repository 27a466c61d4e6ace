"""Who leads among the schedulers of a pool: a lease in Redis, trusted locally for less than its length."""

from __future__ import annotations

import time

from subagents import keys
from subagents.scripts import calls
from subagents.scripts.gateway import Gateway

LEASE, MARGIN, RENEW_EVERY = 5.0, 2.0, 1.0


class Leadership:
    """This scheduler's view of the lead. Two leaders would do no harm, they would only do the same work twice."""

    def __init__(self, gateway: Gateway, prefix: str) -> None:
        self._gateway, self._prefix = gateway, prefix
        self.name = f"scheduler-{keys.new_id()[:8]}"
        self._trusted_until = self._renewed_at = 0.0
        self.since: float | None = None

    def __repr__(self) -> str:
        return f"<Leadership of {self.name}, {'leading' if self.leading else 'following'}>"

    @property
    def leading(self) -> bool:
        """True while the lead may be trusted: until the last renewal was *sent*, plus the lease, minus a margin."""
        return time.monotonic() < self._trusted_until

    async def ask(self) -> bool:
        """Take or renew the lead if that is due; True if this scheduler leads."""
        sent_at = time.monotonic()
        if sent_at - self._renewed_at >= RENEW_EVERY:
            self._renewed_at = sent_at
            if await self._gateway(calls.lead(self._prefix, self.name, round(LEASE * 1000)), patience=0):
                self._trusted_until = sent_at + LEASE - MARGIN
                self.since = self.since or sent_at
            else:
                self._trusted_until, self.since = 0.0, None
        return self.leading

    async def resign(self) -> None:
        """Give the lead up, so that another takes it at once."""
        self._trusted_until, self.since = 0.0, None
        await self._gateway(calls.lead(self._prefix, self.name, 0), patience=1.0)
