"""One pub/sub connection per client: hints that something changed, never the truth.

A stalled subscription raises nothing, so a canary is sent through it each second; when it does not come back, the connection is
dropped and made anew. Whoever listens is told of every (re)connection and then re-reads what it waits for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import cast

from redis.exceptions import RedisError

from subagents.scripts.gateway import Gateway

CANARY_EVERY, CANARY_LOST = 1.0, 3.0
LONGEST_PAUSE = 1.0
CANCEL_AGAIN_AFTER = 0.1
_CANARY = b"canary"


class Subscription:
    """Listens to channels for as long as it runs.

    Args:
        gateway: whose server is listened to.
        channels: full channel names.
        on_message: called with channel and text.
        on_connect: called after each (re)connection, when messages may have been missed.
    """

    def __init__(
        self, gateway: Gateway, channels: tuple[str, ...], on_message: Callable[[str, str], None], on_connect: Callable[[], None]
    ) -> None:
        self._gateway, self._channels = gateway, channels
        self._on_message, self._on_connect = on_message, on_connect
        self._task: asyncio.Task[None] | None = None
        self.connected = asyncio.Event()

    def __repr__(self) -> str:
        state = "connected" if self.connected.is_set() else "not connected"
        return f"<Subscription of {len(self._channels)} channels, {state}>"

    async def start(self) -> None:
        """Begin to listen; returns at once, `connected` tells when the first subscription stands."""
        if self._task is None:
            self._task = asyncio.create_task(self._keep_listening(), name="subagents-subscription")

    async def stop(self) -> None:
        """Stop listening and close the connection."""
        task, self._task = self._task, None
        while task is not None and not task.done():  # again if a library swallows it: before Python 3.12 connecting may
            task.cancel()
            await asyncio.wait({task}, timeout=CANCEL_AGAIN_AFTER)
        self.connected.clear()

    async def _keep_listening(self) -> None:
        pause = 0.05
        while True:
            try:
                await self._listen()
            except (RedisError, OSError):
                pause = min(pause * 2, LONGEST_PAUSE)
            else:
                pause = 0.05
            self.connected.clear()
            await asyncio.sleep(pause)

    async def _listen(self) -> None:
        """Listen until the connection is lost or its canary dies."""
        pubsub = self._gateway.redis.pubsub()
        try:
            await pubsub.subscribe(*self._channels)  # pyright: ignore[reportUnknownMemberType]
            heard, sent, confirmed = time.monotonic(), 0.0, 0
            while time.monotonic() - heard < CANARY_LOST:
                if time.monotonic() - sent >= CANARY_EVERY:
                    sent = time.monotonic()
                    await pubsub.ping(_CANARY)  # pyright: ignore[reportUnknownMemberType]
                message = cast("dict[str, object] | None", await pubsub.get_message(timeout=CANARY_EVERY))
                if message is None:
                    continue
                heard = time.monotonic()
                if message["type"] == "subscribe":
                    confirmed += 1
                    if confirmed == len(self._channels):
                        self.connected.set()
                        self._on_connect()
                elif message["type"] == "message":
                    self._on_message(str(message["channel"]), str(message["data"]))
        finally:
            with suppress(RedisError, OSError):
                await pubsub.aclose()  # type: ignore[no-untyped-call]
