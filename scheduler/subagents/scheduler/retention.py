"""The duty that forgets: settled agents whose time is over leave, their tombstones stay (P10)."""

from __future__ import annotations

import time

from subagents.scheduler.leader import PATIENCE
from subagents.scripts import calls
from subagents.scripts.gateway import Gateway

BUDGET = 50
RETAIN_EVERY = 5.0


class Retention:
    """Looks every few seconds, and goes on round after round while there is more to drop."""

    name = "retention"

    def __init__(self, gateway: Gateway, prefix: str) -> None:
        self._gateway, self._prefix = gateway, prefix
        self._through_at = float("-inf")

    def __repr__(self) -> str:
        return f"<Retention of {self._prefix}, {'due' if self.due else 'not due'}>"

    @property
    def due(self) -> bool:
        """True if it is time to look, or the last portion left some."""
        return time.monotonic() - self._through_at >= RETAIN_EVERY

    async def do(self) -> bool:
        """Drop one portion; True if there is more."""
        more = await self._gateway(calls.retain(self._prefix, BUDGET), patience=PATIENCE)
        if not more:
            self._through_at = time.monotonic()
        return more
