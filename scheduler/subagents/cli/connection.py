"""Reaching the pool that a command is about, or saying within seconds that it cannot be reached."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from subagents import settings
from subagents.cli.options import Target
from subagents.errors import InvalidArgument, RedisUnreachable
from subagents.pool import Pool

FIRST_PATIENCE = 2.0
FIRST_ANSWER_WITHIN = 3.0
"""Seconds. Somebody waits at a keyboard; once the server has answered, a command gets past its restarts."""

PATIENCE = 15.0


@asynccontextmanager
async def connected(target: Target, *, create: bool = False, max_concurrent: int | None = None) -> AsyncGenerator[Pool]:
    """The pool, reached. One that does not exist is an error, so that a mistyped name makes none, unless `create` says otherwise.

    Raises:
        InvalidArgument, RedisUnreachable, PermissionDenied, PoolNotFound, ForeignSchema.
    """
    pool = Pool(named_url(target), name=target.pool, max_concurrent=max_concurrent, patience=FIRST_PATIENCE)
    try:
        try:
            async with asyncio.timeout(FIRST_ANSWER_WITHIN):
                await (pool.open() if create else pool.stats())
        except TimeoutError:
            raise RedisUnreachable(f"Redis at {pool.gateway.where} does not answer: nothing came for {FIRST_ANSWER_WITHIN:g} s") from None
        pool.gateway.patience = PATIENCE
        yield pool
    finally:
        await pool.close()


def named_url(target: Target) -> str:
    """The server that was named; none is an error that says what to set."""
    if target.url is None:
        raise InvalidArgument(
            f"no Redis server is named: set {settings.REDIS_URL_VARIABLE} or give --redis, for example redis://127.0.0.1:6379/0"
            " (`subagents up` starts one)"
        )
    return target.url
