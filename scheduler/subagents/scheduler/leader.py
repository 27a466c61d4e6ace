"""Who leads among the schedulers of a pool: a lease in Redis, trusted locally for less than its length."""

from __future__ import annotations

import time

from subagents.scripts import calls
from subagents.scripts.gateway import Gateway

LEASE, MARGIN, RENEW_EVERY = 5.0, 2.0, 1.0
PATIENCE = 0.1
"""Long enough to get past one lost connection, too short to hold up a round while the server is away."""


class Leadership:
    """One scheduler's view of the lead. Two leaders would do no harm, they would only do the same work twice.

    Args:
        gateway, prefix: the pool.
        name: of this scheduler; no other has it.
    """

    def __init__(self, gateway: Gateway, prefix: str, name: str) -> None:
        self._gateway, self._prefix, self._name = gateway, prefix, name
        self._trusted_until = self._renewed_at = 0.0
        self._since = 0.0

    def __repr__(self) -> str:
        return f"<Leadership of {self._name}, {'leading' if self.leading else 'following'}>"

    @property
    def leading(self) -> bool:
        """True while the lead may be trusted: until the last renewal was *sent*, plus the lease, minus a margin.

        A process that was frozen finds here that it no longer leads, before it has asked anybody.
        """
        return time.monotonic() < self._trusted_until

    @property
    def since(self) -> float | None:
        """The monotonic time at which this scheduler took the lead that it has now; None if it follows."""
        return self._since if self.leading else None

    async def ask(self) -> bool:
        """Take the lead, or renew it if that is due; True if this scheduler leads."""
        sent_at, led = time.monotonic(), self.leading
        if led and sent_at - self._renewed_at < RENEW_EVERY:
            return True
        if await self._gateway(calls.lead(self._prefix, self._name, round(LEASE * 1000)), patience=PATIENCE):
            self._since = self._since if led else sent_at
            self._renewed_at, self._trusted_until = sent_at, sent_at + LEASE - MARGIN
        else:
            self._trusted_until = 0.0
        return self.leading

    async def resign(self) -> None:
        """Give the lead up if it is this scheduler's, so that another takes it at once."""
        self._trusted_until = 0.0
        await self._gateway(calls.lead(self._prefix, self._name, 0), patience=PATIENCE)
