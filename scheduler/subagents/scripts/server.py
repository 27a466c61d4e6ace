"""What the server itself is and how it is set: read at start-up, to refuse what cannot hold the promises."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar, cast

from subagents.errors import PermissionDenied, UnexpectedReply
from subagents.scripts.gateway import Gateway

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """The server's version, and those of its settings that it is willing to tell (None: it is not)."""

    version: tuple[int, ...] | None
    eviction: str | None
    maxmemory: int | None
    persistent: bool | None

    @property
    def evicts(self) -> bool:
        """True if keys may be dropped to make room; an unbounded memory never needs room."""
        return self.eviction not in (None, "noeviction") and self.maxmemory != 0


async def server_facts(gateway: Gateway) -> ServerFacts:
    """Ask the server; managed servers and narrow users may not answer everything."""
    facts = await _if_told(gateway, lambda: cast("Awaitable[dict[str, object]]", gateway.redis.info())) or {}
    version, eviction, maxmemory = facts.get("redis_version"), facts.get("maxmemory_policy"), facts.get("maxmemory")
    return ServerFacts(
        version=None if version is None else tuple(int(part) for part in str(version).split(".")[:2] if part.isdigit()),
        eviction=None if eviction is None else str(eviction),
        maxmemory=None if maxmemory is None else int(str(maxmemory)),
        persistent=await _persistent(gateway, facts.get("aof_enabled")),
    )


async def pool_max_step(gateway: Gateway, prefix: str) -> float | None:
    """How far, in seconds, pool time moves at most in one call; None if the pool is gone."""
    stored = await gateway.patiently(lambda: cast("Awaitable[str | None]", gateway.redis.hget(f"{prefix}config", "max_step")), 0.1)
    return int(stored) / 1000 if stored else None


async def _persistent(gateway: Gateway, appending: object) -> bool | None:
    """Whether the server keeps its data on disk: it appends, or it saves snapshots."""
    if str(appending) == "1":
        return True
    answer = await _if_told(gateway, lambda: cast("Awaitable[dict[str, str]]", gateway.redis.config_get("save")))
    return bool(answer["save"]) if answer and "save" in answer else None


async def _if_told(gateway: Gateway, send: Callable[[], Awaitable[T]]) -> T | None:
    """The answer to a question that a server may forbid or not know."""
    try:
        return await gateway.patiently(send)
    except (PermissionDenied, UnexpectedReply):
        return None
