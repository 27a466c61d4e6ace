"""Work that runs under a permit, and the handle that follows it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

from subagents.errors import InvalidArgument
from subagents.permit import Permit
from subagents.permit_line import PermitLine

T = TypeVar("T")


class Scheduled(Generic[T]):
    """Follows one piece of scheduled work: `await handle` returns its value, or raises its failure (L5); every handle settles (L6).

    Awaiting only watches: a wait that is cancelled or times out does not touch the work. `cancel()` does.
    """

    def __init__(self, line: PermitLine, work: Callable[[], Coroutine[Any, Any, T]] | Coroutine[Any, Any, T]) -> None:
        if not (inspect.iscoroutine(work) or callable(work)):
            raise InvalidArgument(f"schedule() takes a coroutine function without arguments or a coroutine, not {work!r}")
        self._line, self._work = line, work
        self._place = line.enter()
        self._permit: Permit | None = None
        self._task: asyncio.Task[T] | None = None
        self._entered = False

    def __repr__(self) -> str:
        state = "done" if self.done() else "granted" if self.granted else "waiting"
        return f"<Scheduled {self.id}, {state}>"

    def __await__(self) -> Generator[Any, None, T]:
        assert self._task is not None
        return asyncio.shield(self._task).__await__()

    @property
    def id(self) -> str:
        """The id under which `Semaphore.statistics` knows its permit."""
        return self._place.id

    @property
    def granted(self) -> bool:
        """True once it has been granted its permit, also when it is done."""
        return self._place.granted

    @property
    def lost(self) -> bool:
        """True if its permit was lost on the way (L15): somebody else may have run beside it. Its value or failure stands."""
        return self._permit is not None and self._permit.lost

    def done(self) -> bool:
        """True once it has settled."""
        return self._task is not None and self._task.done()

    def cancel(self) -> bool:
        """Stop it: work that waits leaves the line at once and never starts, work that runs is cancelled. False if it had settled."""
        return self._task is not None and self._task.cancel()

    async def enter(self) -> None:
        """Wait until the server has taken it in."""
        try:
            await self._place.joined
        except BaseException:
            await self._line.see_off(self._place)
            self._close()
            raise

    def begin(self) -> asyncio.Task[T]:
        """Make the task that waits for the turn and does the work."""
        self._task = asyncio.create_task(self._run(), name=f"subagents-scheduled-{self.id}")
        self._task.add_done_callback(self._on_done)
        return self._task

    async def _run(self) -> T:
        self._entered = True
        try:
            self._permit = await self._line.wait(self._place)
        except BaseException:
            self._close()
            raise
        try:
            return await (self._work() if callable(self._work) else self._work)
        finally:
            await self._line.drop(self._permit)

    def _on_done(self, task: asyncio.Task[T]) -> None:
        del task
        if not self._entered:  # cancelled before its first step, so that nothing in `_run` could clean up
            self._line.leave(self._place)
            self._close()

    def _close(self) -> None:
        if inspect.iscoroutine(self._work):
            self._work.close()
