"""Whether a server can hold what the pool promises: refused if it cannot, warned of if that cannot be told."""

from __future__ import annotations

import logging

from subagents.errors import InfrastructureError
from subagents.scripts.server import ServerFacts

log = logging.getLogger(__name__)

OLDEST = (7, 0)


class UnfitServer(InfrastructureError):
    """The server cannot hold the promises: too old, or set to evict keys when its memory is full."""


def check(facts: ServerFacts, where: str) -> None:
    """Refuse a server that is unfit, and warn once of everything else that is wrong or hidden.

    Raises:
        UnfitServer: its version is below 7.0, or its memory is bounded and its policy evicts keys.
    """
    if facts.version is not None and facts.version < OLDEST:
        version = ".".join(map(str, facts.version))
        raise UnfitServer(f"Redis at {where} has version {version}; the oldest that runs a pool is 7.0: use a newer server")
    if facts.evicts:
        raise UnfitServer(
            f"Redis at {where} evicts keys when its memory is full (maxmemory-policy {facts.eviction}), and a whole pool could vanish: "
            "set maxmemory-policy to noeviction"
        )
    for warning in warnings_of(facts):
        log.warning("Redis at %s %s", where, warning)


def warnings_of(facts: ServerFacts) -> list[str]:
    """What a pool can live with, and its operator should know."""
    hidden = [name for name, value in (("version", facts.version), ("maxmemory-policy", facts.eviction)) if value is None]
    hidden += ["appendonly", "save"] if facts.persistent is None else []
    found: list[str] = []
    if hidden:
        found.append(f"does not tell its {', '.join(hidden)}: make sure of version 7.0 or later, noeviction, and persistence yourself")
    if facts.eviction not in (None, "noeviction"):
        found.append(f"would evict keys if its memory were bounded (maxmemory-policy {facts.eviction}): set it to noeviction")
    if facts.persistent is False:
        found.append("keeps nothing on disk (neither appendonly nor save): a restart loses the pool; turn appendonly on")
    return found
