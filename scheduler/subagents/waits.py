"""Waiting for agents to settle: one subscription wakes all waiters of a client, and their re-reads share round trips.

A waiter subscribes first and reads then, so nothing falls in between; it reads again after every reconnection and from time to time,
because messages are hints and may be lost.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from subagents import keys, settings
from subagents.errors import AgentExpired, PoolClosed, UnknownAgent
from subagents.models import AgentRecord
from subagents.scripts import calls
from subagents.scripts.gateway import Gateway
from subagents.scripts.replies import Code, Reply, pairs
from subagents.scripts.subscription import Subscription

T = TypeVar("T")
READ_AGAIN_EVERY = 2.0
BATCH = 100


def record_of(reply: Reply) -> AgentRecord:
    """The record that a reply holds; an expired or unknown agent raises."""
    if reply.code is Code.EXPIRED:
        raise AgentExpired(reply.text(0))
    if reply.code is Code.UNKNOWN:
        raise UnknownAgent(reply.text(0))
    return AgentRecord.from_fields(pairs(reply.rest))


class Waits:
    """All waits of one client of one pool."""

    def __init__(self, gateway: Gateway, prefix: str) -> None:
        self.client = keys.new_id()
        self._gateway, self._prefix = gateway, prefix
        channels = (f"{prefix}client:{self.client}", f"{prefix}idle")
        self._subscription = Subscription(gateway, channels, self._on_message, self._wake_all)
        self._waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self._unread: dict[str, list[asyncio.Future[Reply]]] = {}
        self._readers: set[asyncio.Task[None]] = set()
        self._closed = False

    def __repr__(self) -> str:
        return f"<Waits for {len(self._waiting)} names, {self._subscription!r}>"

    async def start(self) -> None:
        """Begin to listen, if it does not yet."""
        if self._closed:
            raise PoolClosed
        await self._subscription.start()

    async def stop(self) -> None:
        """End every wait with `PoolClosed`; no agent is touched (P19)."""
        self._closed = True
        self._wake_all()
        for reader in list(self._readers):
            reader.cancel()
            with suppress(asyncio.CancelledError):
                await reader
        unread, self._unread = self._unread, {}  # of a reader that was cancelled before it had begun
        _settle_futures([future for futures in unread.values() for future in futures], PoolClosed())
        await self._subscription.stop()

    async def settled(self, agent_id: str, timeout: float | None) -> AgentRecord:
        """The agent's record once it has settled, or its live record when `timeout` seconds are over (P8)."""

        async def read() -> AgentRecord:
            return record_of(await self._read(agent_id))

        return await self.until(agent_id, read, lambda record: record.settled, timeout)

    async def until(
        self, name: str, read: Callable[[], Awaitable[T]], done: Callable[[T], bool], timeout: float | None, every: float = READ_AGAIN_EVERY
    ) -> T:
        """Read until `done`, each time `name` is called out, and at least every `every` seconds; the last reading when time is over."""
        bound = settings.wait_timeout(timeout)
        deadline = None if bound is None else time.monotonic() + bound
        called = asyncio.Event()
        await self.start()
        self._waiting[name].add(called)
        try:
            await self._listening(deadline)
            while True:
                called.clear()
                value = await self._or_closed(read)
                remaining = every if deadline is None else min(every, deadline - time.monotonic())
                if done(value) or remaining <= 0:
                    return value
                with suppress(TimeoutError):
                    async with asyncio.timeout(remaining):  # not wait_for: before Python 3.12 it may swallow a cancellation
                        await called.wait()
        finally:
            self._waiting[name].discard(called)
            if not self._waiting[name]:
                del self._waiting[name]

    async def _or_closed(self, read: Callable[[], Awaitable[T]]) -> T:
        if self._closed:
            raise PoolClosed
        try:
            return await read()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._closed and task is not None and not task.cancelling():
                raise PoolClosed from None
            raise

    async def _listening(self, deadline: float | None) -> None:
        patience = READ_AGAIN_EVERY if deadline is None else min(READ_AGAIN_EVERY, max(deadline - time.monotonic(), 0))
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._subscription.connected.wait()

    async def _read(self, agent_id: str) -> Reply:
        """One record; everything that is asked for in the same turn of the loop goes in one call."""
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        if not self._unread:
            reader = asyncio.create_task(self._read_batch(), name="subagents-read")
            self._readers.add(reader)
            reader.add_done_callback(self._readers.discard)
        self._unread.setdefault(agent_id, []).append(future)
        return await future

    async def _read_batch(self) -> None:
        await asyncio.sleep(0)
        unread, self._unread = self._unread, {}
        ids = list(unread)
        for at in range(0, len(ids), BATCH):
            chunk = ids[at : at + BATCH]
            try:
                replies = await self._gateway(calls.get(self._prefix, chunk, self.client))
            except Exception as failure:
                _settle_futures([future for agent_id in chunk for future in unread[agent_id]], failure)
            except asyncio.CancelledError:
                _settle_futures([future for futures in unread.values() for future in futures], PoolClosed())
                raise
            else:
                for agent_id, reply in zip(chunk, replies, strict=True):
                    _settle_futures(unread[agent_id], reply)

    def _on_message(self, channel: str, text: str) -> None:
        names = ("idle " + text,) if channel.endswith(":idle") else text.split(",")
        for name in names:
            for called in self._waiting.get(name, ()):
                called.set()

    def _wake_all(self) -> None:
        for waiters in self._waiting.values():
            for called in waiters:
                called.set()


def _settle_futures(futures: list[asyncio.Future[Reply]], outcome: Reply | Exception) -> None:
    for future in futures:
        if future.done():
            continue
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
