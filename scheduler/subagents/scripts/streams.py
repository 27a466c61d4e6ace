"""Blocking reads of streams: the pool's history, and what one agent says."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import cast

from subagents.scripts.gateway import Gateway

BLOCK_MS = 1000
_Batch = Sequence[tuple[str, Sequence[tuple[str, dict[str, str]]]]]


async def read(
    gateway: Gateway, key: str, after: str, count: int = 200, block_ms: int | None = BLOCK_MS
) -> list[tuple[str, dict[str, str]]]:
    """Entries after the cursor `after`, waiting up to `block_ms` for the first (None: not at all); empty if none came."""

    async def send() -> object:
        return await cast("Awaitable[object]", gateway.redis.xread({key: after}, count=count, block=block_ms))

    answer = cast("_Batch | dict[str, object] | None", await gateway.patiently(send))
    if not answer or isinstance(answer, dict):
        return []
    return [(cursor, fields) for cursor, fields in answer[0][1] if fields]


async def newest(gateway: Gateway, key: str) -> str:
    """The cursor of the newest entry; `0` if there is none."""

    async def send() -> object:
        return await cast("Awaitable[object]", gateway.redis.xrevrange(key, count=1))

    entries = cast("Sequence[tuple[str, dict[str, str]]]", await gateway.patiently(send))
    return entries[0][0] if entries else "0"
