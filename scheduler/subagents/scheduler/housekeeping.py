"""The duty that keeps a pool moving: leases that ran out, jobs that arq lost, open sweeps, free permits, lost wake-ups."""

from __future__ import annotations

from subagents.scheduler.leader import PATIENCE
from subagents.scripts import calls
from subagents.scripts.gateway import Gateway

BUDGET = 25
"""How many of each kind one call looks at: a few ms of the server's time, for a settlement costs it about 0.1 ms."""


class Housekeeping:
    """Does it all in one call a round, which also carries pool time on when nobody else calls."""

    name = "housekeeping"
    due = True

    def __init__(self, gateway: Gateway, prefix: str) -> None:
        self._gateway, self._prefix = gateway, prefix

    def __repr__(self) -> str:
        return f"<Housekeeping of {self._prefix}>"

    async def do(self) -> bool:
        """Do one portion; True if there is more."""
        return await self._gateway(calls.tend(self._prefix, BUDGET), patience=PATIENCE)
