"""What the server itself is and how it is set: read at start-up, to refuse what cannot hold the promises."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import cast

from redis.exceptions import ResponseError

from subagents.scripts.gateway import Gateway

OLDEST = (7, 0)


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """The server's version, and those of its settings that it is willing to tell (None: it is not)."""

    version: tuple[int, ...]
    eviction: str | None
    persistent: bool | None


async def server_facts(gateway: Gateway) -> ServerFacts:
    """Ask the server; managed servers and narrow users may not answer everything."""

    async def info() -> dict[str, object]:
        return await cast("Awaitable[dict[str, object]]", gateway.redis.info())

    facts = await gateway.patiently(info)
    version = tuple(int(part) for part in str(facts.get("redis_version", "7.0")).split(".")[:2] if part.isdigit())
    eviction = facts.get("maxmemory_policy")
    appending = facts.get("aof_enabled")
    persistent = None if appending is None else str(appending) == "1" or await _saves(gateway)
    return ServerFacts(version, None if eviction is None else str(eviction), persistent)


async def _saves(gateway: Gateway) -> bool:
    """Whether the server writes snapshots; a server that does not tell is believed to."""
    try:
        answer = await cast("Awaitable[dict[str, str]]", gateway.redis.config_get("save"))
    except ResponseError:
        return True
    return bool(answer.get("save"))
