"""The one door to Redis: sends script calls, heals `NOSCRIPT`, retries what a retry may get past, and translates errors.

Every call may be sent twice: ids, nonces and tokens make a lost reply harmless.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Self, TypeVar, cast

import redis
import redis.asyncio
from redis.exceptions import NoPermissionError, NoScriptError, ReadOnlyError, RedisError

from subagents.errors import CallerError, ForeignSchema, InvalidArgument, PermissionDenied, PoolNotFound
from subagents.scripts import calls, loader
from subagents.scripts.calls import Call
from subagents.scripts.replies import Code, Reply
from subagents.scripts.translation import may_pass, translated

T = TypeVar("T")

FIRST_PAUSE, LONGEST_PAUSE = 0.02, 0.5
SOCKET_TIMEOUT, CONNECT_TIMEOUT = 5.0, 2.0
MAX_CONNECTIONS, CONNECTION_WAIT = 64, 30
"""A thousand calls at once share these connections; each call waits its turn for one, at most so many seconds."""


def server_name(url: str) -> str:
    """The server of a URL, as it may be shown: without user and password."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}" if rest else url


def _check(url: str) -> None:
    if not url.startswith(("redis://", "rediss://", "unix://")):
        raise InvalidArgument(f"Redis URL {server_name(url)!r} is refused: expected redis://HOST:PORT/DB, rediss://… or unix://PATH")


def _answer(call: Call[T], raw: object) -> T:
    reply = Reply.of(raw)
    if reply.code is Code.NO_POOL:
        raise PoolNotFound(_pool_of(call.prefix))
    if reply.code is Code.FOREIGN_SCHEMA or (reply.code is Code.EXISTS and reply.text(0) != "1"):
        raise ForeignSchema(_pool_of(call.prefix), reply.text(0))
    return call.read(reply)


def _pool_of(prefix: str) -> str:
    return prefix.partition("{")[2].rpartition("}")[0]


class Gateway:
    """Sends calls from an event loop.

    Args:
        url: `redis://`, `rediss://` or `unix://`.
        patience: seconds for which a call is tried again while the server does not answer.
        socket_timeout: seconds after which an unanswered command counts as failed; "failed" never means "not done".
    """

    def __init__(self, url: str, *, patience: float = 10.0, socket_timeout: float = SOCKET_TIMEOUT) -> None:
        self.where = server_name(url)
        self.patience = patience
        _check(url)
        self._closed: type[CallerError] | None = None
        self._proven: set[str] = set()
        try:
            connections: redis.asyncio.BlockingConnectionPool = redis.asyncio.BlockingConnectionPool.from_url(  # pyright: ignore[reportUnknownMemberType]
                url,
                decode_responses=True,
                socket_timeout=socket_timeout,
                socket_connect_timeout=CONNECT_TIMEOUT,
                max_connections=MAX_CONNECTIONS,
                timeout=CONNECTION_WAIT,
            )
        except ValueError as refused:
            raise InvalidArgument(f"Redis URL {self.where!r} is refused: {refused}") from None
        self.redis = redis.asyncio.Redis(connection_pool=connections)

    def __repr__(self) -> str:
        return f"Gateway({self.where!r})"

    async def __call__(self, call: Call[T], *, patience: float | None = None) -> T:
        """Send a call and return what its answer means; `patience` replaces the gateway's own, 0 sends it once."""

        async def send() -> object:
            await self._prove_rights(call.prefix)
            return await self._evaluate(call)

        return _answer(call, await self.patiently(send, patience))

    async def _prove_rights(self, prefix: str) -> None:
        """Before the first call on a pool: a script that lacks a right halfway through would leave half of a change behind."""
        if prefix in self._proven:
            return
        call = calls.prove(prefix)
        try:
            missing = call.read(Reply.of(await self._evaluate(call)))
        except NoPermissionError as refused:  # it may not even ask
            missing = f"EVALSHA and EVAL on keys {prefix}*: {refused}"
        if missing is not None:
            raise PermissionDenied(
                f"the Redis user at {self.where} lacks a right that the pool needs: {missing} (deploy/redis.acl has them all)"
            )
        self._proven.add(prefix)

    async def _evaluate(self, call: Call[T]) -> object:
        script = loader.load(call.script)
        try:
            return await cast("Awaitable[object]", self.redis.evalsha(script.sha, 1, call.prefix, *call.args))
        except NoScriptError:
            return await cast("Awaitable[object]", self.redis.eval(script.source, 1, call.prefix, *call.args))

    async def patiently(self, send: Callable[[], Awaitable[T]], patience: float | None = None) -> T:
        """Run `send` until it answers or the patience is over."""
        deadline, pause = time.monotonic() + (self.patience if patience is None else patience), FIRST_PAUSE
        task = asyncio.current_task()
        cancellations = task.cancelling() if task is not None else 0
        while True:
            if self._closed is not None:
                raise self._closed
            try:
                answer = await send()
                if task is not None and task.cancelling() > cancellations:  # swallowed: redis-py sends with wait_for, see bpo-37658
                    raise asyncio.CancelledError
                return answer
            except (RedisError, OSError) as error:
                if self._closed is not None:
                    raise self._closed from None
                if isinstance(error, ReadOnlyError):  # this connection leads to a server that is no longer the master
                    await self.redis.connection_pool.disconnect()  # pyright: ignore[reportGeneralTypeIssues] mistyped by redis-py
                if not may_pass(error) or time.monotonic() + pause > deadline:
                    raise translated(error, self.where) from error
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def close(self, reason: type[CallerError] | None = None) -> None:
        """Close every connection. With a reason, calls that are under way or come later raise it instead of connecting again."""
        self._closed = reason
        await self.redis.aclose()
        await self.redis.connection_pool.disconnect()  # pyright: ignore[reportGeneralTypeIssues] mistyped by redis-py


class ThreadGateway:
    """Sends calls from a thread, once each: its callers have deadlines of their own and decide what a failure means.

    Args:
        socket_timeout: seconds; a renewal must fail while there is still time to act on it.
    """

    def __init__(self, url: str, *, socket_timeout: float = SOCKET_TIMEOUT) -> None:
        self.where = server_name(url)
        _check(url)
        self.redis: redis.Redis = redis.Redis.from_url(  # pyright: ignore[reportUnknownMemberType]
            url, decode_responses=True, socket_timeout=socket_timeout, socket_connect_timeout=socket_timeout
        )

    def __repr__(self) -> str:
        return f"ThreadGateway({self.where!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __call__(self, call: Call[T]) -> T:
        """Send a call and return what its answer means; Redis' errors come translated."""
        script = loader.load(call.script)
        try:
            try:
                raw = cast("object", self.redis.evalsha(script.sha, 1, call.prefix, *call.args))
            except NoScriptError:
                raw = cast("object", self.redis.eval(script.source, 1, call.prefix, *call.args))
        except (RedisError, OSError) as error:
            if isinstance(error, ReadOnlyError):
                self.redis.connection_pool.disconnect()
            raise translated(error, self.where) from error
        return _answer(call, raw)

    def close(self) -> None:
        """Close every connection."""
        self.redis.close()
        self.redis.connection_pool.disconnect()
