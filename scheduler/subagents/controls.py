"""Live settings: the limit, the pause and the latch. They are in Redis, versioned, with who and when (G1)."""

from __future__ import annotations

from subagents import settings
from subagents.scripts import calls
from subagents.scripts.gateway import Gateway

ADMIT_BUDGET = 100


class Controls:
    """Changes the live settings of one pool, and admits what a change makes admissible."""

    def __init__(self, gateway: Gateway, prefix: str, by: str) -> None:
        self._gateway, self._prefix, self.by = gateway, prefix, by

    def __repr__(self) -> str:
        return f"<Controls of {self._prefix}>"

    async def set_max_concurrent(self, limit: int) -> int:
        """Set the limit; returns the one before (L7, L8, L9)."""
        checked = settings.max_concurrent(limit)
        before, more = await self._gateway(calls.set_limit(self._prefix, checked, self.by))
        await self._admit_rest(more)
        return before

    async def pause(self, reason: str | None) -> None:
        """Stop admission; what is admitted goes on (I12)."""
        await self._gateway(calls.pause(self._prefix, True, reason or "", self.by))

    async def unpause(self, reason: str | None) -> None:
        """Let admission go on."""
        await self._admit_rest(await self._gateway(calls.pause(self._prefix, False, reason or "", self.by)))

    async def unhalt(self, reason: str | None) -> None:
        """Open the latch; a pause stays as it was (I12)."""
        await self._admit_rest(await self._gateway(calls.unhalt(self._prefix, reason or "", self.by)))

    async def _admit_rest(self, more: bool) -> None:
        while more:
            more = await self._gateway(calls.admit(self._prefix, ADMIT_BUDGET))
