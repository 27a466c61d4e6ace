"""A pool's settings: their bounds, defaults, and how the lease gives all other times."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

from subagents.errors import InvalidArgument

MAX_CONCURRENT_BOUND = 1_000_000
REDIS_URL_VARIABLE = "SUBAGENTS_REDIS_URL"
POOL_VARIABLE = "SUBAGENTS_POOL"
MAX_INPUT_BYTES = 262_144
MAX_RESULT_BYTES = 1_048_576


def whole_number(name: str, value: object, low: int, high: int) -> int:
    """Return `value` if it is an integer within `low`..`high`; bool, float, text and everything else are refused (L9)."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        bound = f"{high:_}".replace("_", " ")
        raise InvalidArgument(f"{name} must be an integer from {low} to {bound}, not {value!r}")
    return value


def max_concurrent(value: object) -> int:
    """Return `value` if it may be a limit: an integer 0..1 000 000; 0 holds everything (L9)."""
    return whole_number("max_concurrent", value, 0, MAX_CONCURRENT_BOUND)


def seconds(name: str, value: object, low: float, high: float) -> float:
    """Return `value` as seconds if it is a number within `low`..`high`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise InvalidArgument(f"{name} must be a number of seconds from {low:g} to {high:g}, not {value!r}")
    return float(value)


def wait_timeout(value: object) -> float | None:
    """Return `value` as the seconds that a wait may take: None waits without end, 0 or less reads once."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise InvalidArgument(f"timeout must be a number of seconds, or None to wait without end, not {value!r}")
    return float(value)


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Everything that follows from a lease, in seconds; the parts fit each other at every lease of a second or more.

    A worker process ends itself `margin` before its leases can have run out, so that it never overlaps with its replacement.
    """

    lease: float

    @property
    def max_step(self) -> float:
        """How far pool time may move in one call."""
        return min(2.0, self.lease / 6)

    @property
    def margin(self) -> float:
        """How long before the end of its lease a worker stops trusting it."""
        return max(2 * self.max_step + 0.3, self.lease / 3)

    @property
    def trust_window(self) -> float:
        """How long after sending its last successful renewal a worker may run agents."""
        return self.lease - self.margin

    @property
    def renew_every(self) -> float:
        """The time between two renewals, and the bound on a renewal's socket; no longer than a step, or pool time would run slow."""
        return min(self.lease / 8, self.max_step)


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """What a pool is made with. They are used only if the pool does not exist yet; a stored setting stands until someone sets it (G3).

    Args:
        max_concurrent: permits in the whole fleet, 0..1 000 000.
        lease: seconds, 1..3600.
        max_depth: how deep agents may nest, 0..64.
        max_bypass: how many runs may bypass the queue at once, 0..1000.
    """

    max_concurrent: int = 4
    lease: float = 15.0
    max_depth: int = 3
    max_bypass: int = 0
    max_queued: int = 10_000_000
    event_cap: int = 100_000
    keep_settled: float = 12 * 3600.0
    keep_consumed: float = 600.0
    keep_tombstone: float = 7 * 86400.0

    def __post_init__(self) -> None:
        max_concurrent(self.max_concurrent)
        seconds("lease", self.lease, 1, 3600)
        whole_number("max_depth", self.max_depth, 0, 64)
        whole_number("max_bypass", self.max_bypass, 0, 1000)

    def stored(self) -> dict[str, str]:
        """The settings as the `config` hash holds them: integers, times in ms."""
        times = LeaseTimes(self.lease)
        return {
            "max_concurrent": str(self.max_concurrent),
            "lease": milliseconds(self.lease),
            "max_step": milliseconds(times.max_step),
            "max_depth": str(self.max_depth),
            "max_bypass": str(self.max_bypass),
            "max_queued": str(self.max_queued),
            "event_cap": str(self.event_cap),
            "keep_settled": milliseconds(self.keep_settled),
            "keep_consumed": milliseconds(self.keep_consumed),
            "keep_tombstone": milliseconds(self.keep_tombstone),
        }


def milliseconds(value: float) -> str:
    """Seconds as whole milliseconds, the way scripts take them."""
    return str(round(value * 1000))


def url_from_environment() -> str | None:
    """The server that `SUBAGENTS_REDIS_URL` names, if it does."""
    return os.environ.get(REDIS_URL_VARIABLE) or None


def pool_from_environment() -> str:
    """The pool that `SUBAGENTS_POOL` names; `default` otherwise."""
    return os.environ.get(POOL_VARIABLE) or "default"
