"""A latch ties a signal of the caller's to a scope: when the signal fires, the scope is interrupted, exactly once."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from subagents import keys
from subagents.models import InterruptReport

if TYPE_CHECKING:
    from subagents.pool import Pool

log = logging.getLogger(__name__)


@runtime_checkable
class Signal(Protocol):
    """Something that fires once: `asyncio.Event`, or anything with these two methods."""

    def is_set(self) -> bool:
        """True once it has fired."""
        ...

    async def wait(self) -> object:
        """Return when it fires."""
        ...


class Latch:
    """Latch at the start of every turn: `latch.update(signal)`. An agent that outlives the run that spawned it is then still
    covered by a later turn (I6).

    The same signal again installs nothing (I3); a new one replaces the old, which then does nothing when it fires (I4); `None`
    detaches (I5); one that has already fired interrupts now (I8). A run that ends without its signal never interrupts (I2).
    """

    def __init__(self, pool: Pool, scope: str = keys.EVERYTHING) -> None:
        self._pool, self.scope = pool, scope
        self._signal: Signal | None = None
        self._watch: asyncio.Task[None] | None = None
        self._under_way: set[asyncio.Task[None]] = set()
        self.report: InterruptReport | None = None

    def __repr__(self) -> str:
        state = "detached" if self._signal is None else "fired" if self.report else "armed"
        return f"<Latch on {self.scope!r}, {state}>"

    def update(self, signal: Signal | None) -> None:
        """Watch this signal from now on, instead of the one before. Never raises (I5)."""
        if signal is self._signal:
            return
        self._detach()
        self._signal = signal
        if signal is not None:
            self.report = None
            self._watch = asyncio.create_task(self._fire_on(signal), name="subagents-latch")
            self._under_way.add(self._watch)  # an interrupt under way outlives its signal's replacement
            self._watch.add_done_callback(self._under_way.discard)

    async def fired(self) -> InterruptReport | None:
        """Wait until the interrupt of the signal that is latched now has been sent; None if nothing is latched."""
        if self._watch is not None:
            await asyncio.wait([self._watch])
        return self.report

    def _detach(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None and not _has_fired(self._signal):
            watch.cancel()

    async def _fire_on(self, signal: Signal) -> None:
        try:
            await signal.wait()
        except Exception:
            log.exception("a signal latched on scope %r failed; it will interrupt nothing", self.scope)
            return
        try:
            self.report = await self._pool.interrupt(self.scope, reason="the latched signal fired")
        except Exception:
            log.exception("the interrupt of scope %r, asked for by a latched signal, failed", self.scope)


def _has_fired(signal: Signal | None) -> bool:
    """True if it has; one that cannot tell has not."""
    try:
        return signal is not None and signal.is_set()
    except Exception:
        log.exception("a latched signal cannot tell whether it has fired")
        return False
