"""Reports the ends of runs to the pool. What ends while a report is under way goes in the next one, so a burst shares round trips."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from subagents.errors import InfrastructureError
from subagents.scripts import calls
from subagents.scripts.calls import Settlement
from subagents.scripts.gateway import Gateway
from subagents.scripts.replies import Reply

log = logging.getLogger(__name__)

BATCH, BATCH_BYTES = 50, 1_048_576


class Settler:
    """Sends settlements until each is answered: a run that has ended must not be lost because the server was away."""

    def __init__(self, gateway: Gateway, prefix: str) -> None:
        self._gateway, self._prefix = gateway, prefix
        self._queue: list[tuple[Settlement, asyncio.Future[Reply]]] = []
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Settler with {len(self._queue)} in line>"

    async def settle(self, settlement: Settlement) -> Reply:
        """Report one end and return the answer. Cancelling the caller does not take the report back."""
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._queue.append((settlement, future))
        if self._task is None:
            self._task = asyncio.create_task(self._send_all(), name="subagents-settle")
        return await asyncio.shield(future)

    async def stop(self) -> None:
        """Give up what has not been answered; the leases run out and the pool settles the runs itself."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _send_all(self) -> None:
        try:
            while self._queue:
                batch = self._next_batch()
                try:
                    replies = await self._gateway(calls.finish(self._prefix, [settlement for settlement, _ in batch]))
                except InfrastructureError as failure:
                    log.warning("%d ended runs cannot be reported yet: %s", len(batch), failure)
                    self._queue[:0] = batch
                    await asyncio.sleep(0.2)
                    continue
                except Exception as failure:  # not to be mended by sending it again: whoever waits is told, and the leases run out
                    for _, future in batch:
                        if not future.done():
                            future.set_exception(failure)
                    continue
                for (_, future), reply in zip(batch, replies, strict=True):
                    if not future.done():
                        future.set_result(reply)
        finally:
            self._task = None

    def _next_batch(self) -> list[tuple[Settlement, asyncio.Future[Reply]]]:
        size, count = 0, 0
        for settlement, _ in self._queue[:BATCH]:
            size += len(settlement.result) + len(settlement.error)
            if count and size > BATCH_BYTES:
                break
            count += 1
        batch, self._queue = self._queue[:count], self._queue[count:]
        return batch
