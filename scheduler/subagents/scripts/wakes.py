"""Blocking for work: one wake-up wakes one worker."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import cast

from subagents.scripts.gateway import Gateway


async def wait_for_wake(gateway: Gateway, prefix: str, types: Sequence[str], seconds: int) -> bool:
    """Block until work of one of the types is announced to this caller; False after `seconds` without."""

    async def send() -> object:
        return await cast("Awaitable[object]", gateway.redis.blpop([f"{prefix}wake:{type}" for type in types], timeout=seconds))

    return await gateway.patiently(send) is not None
