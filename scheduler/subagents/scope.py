"""A scope as a block: what is spawned in it belongs together, and leaving it by an error stops what is left of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from subagents import keys
from subagents.handle import AgentHandle
from subagents.models import AgentRecord, InterruptReport, SpawnRequest

if TYPE_CHECKING:
    from subagents.pool import Pool


class Scope:
    """Spawns with a scope added. Leaving the block by exception or cancellation interrupts the scope; a normal exit does not (P19)."""

    def __init__(self, pool: Pool, name: str) -> None:
        self._pool = pool
        self.name = keys.scope_name(name)

    def __repr__(self) -> str:
        return f"Scope({self.name!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            await asyncio.shield(self.interrupt(reason=f"scope left by {type(error).__name__}", wait=0))

    async def spawn(self, type: str, input: Any = None, *, scopes: Sequence[str] = (), **options: Any) -> AgentHandle:
        """`pool.spawn` with this scope added."""
        return await self._pool.spawn(type, input, scopes=(self.name, *scopes), **options)

    async def spawn_many(self, requests: Sequence[SpawnRequest]) -> list[AgentHandle]:
        """`pool.spawn_many` with this scope added to each."""
        return await self._pool.spawn_many([r.model_copy(update={"scopes": (self.name, *r.scopes)}) for r in requests])

    async def run(self, type: str, input: Any = None, *, scopes: Sequence[str] = (), **options: Any) -> AgentRecord:
        """`pool.run` with this scope added."""
        return await self._pool.run(type, input, scopes=(self.name, *scopes), **options)

    async def interrupt(self, *, reason: str | None = None, wait: float = 5, force: bool = False) -> InterruptReport:
        """Interrupt this scope."""
        return await self._pool.interrupt(self.name, reason=reason, wait=wait, force=force)

    async def wait_idle(self, timeout: float | None = None) -> bool:
        """Wait until no agent of this scope is unsettled."""
        return await self._pool.wait_idle(self.name, timeout)
