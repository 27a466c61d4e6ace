"""A pool, and a bare semaphore, in numbers."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class PoolStats(BaseModel):
    """The pool as it stood in one instant. Every number is derived from the collections themselves (L11)."""

    model_config = ConfigDict(frozen=True)

    max_concurrent: int
    active: int
    queued: int
    unserved: int
    waiting: int
    bypass: int
    stopping: int
    paused: bool
    halted: bool
    oldest_wait_s: float | None
    workers: int


class SemaphoreStatistics(BaseModel):
    """A bare semaphore as it stood in one instant (L14). `position` counts from 1 and is that of the id asked for."""

    model_config = ConfigDict(frozen=True)

    limit: int
    held: int
    waiting: int
    oldest_wait_s: float | None
    position: int | None = None
