"""Waiting for a condition, never for a time."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any


async def eventually(condition: Callable[[], Awaitable[Any] | Any], description: str, timeout: float = 20.0) -> Any:
    """Return the condition's value once it is true; fail with the description when `timeout` seconds were not enough."""
    deadline, pause = time.monotonic() + timeout, 0.002
    while True:
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout:g} s: {description} (last seen: {value!r})")
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, 0.05)
