"""Redis' errors, said in the product's words: what is wrong, and what to do."""

from __future__ import annotations

from redis import exceptions

from subagents.errors import InfrastructureError, PermissionDenied, RedisUnreachable, ServerOutOfMemory, UnexpectedReply

TRANSIENT = (
    exceptions.ConnectionError,
    exceptions.TimeoutError,
    exceptions.ReadOnlyError,
    exceptions.TryAgainError,
    ConnectionError,
    TimeoutError,
    OSError,
)


def may_pass(error: BaseException) -> bool:
    """True for what a retry may get past: a lost connection, a time-out, a server that loads, fails over or is busy.

    A refused login is a `ConnectionError` for redis-py, but no retry mends it.
    """
    if _login_refused(error):
        return False
    if isinstance(error, exceptions.ResponseError):
        return isinstance(error, exceptions.ReadOnlyError) or str(error).startswith(("BUSY ", "LOADING", "MASTERDOWN", "CLUSTERDOWN"))
    return isinstance(error, TRANSIENT)


def _login_refused(error: BaseException) -> bool:
    """True for a refused login; over a unix socket redis-py wraps it once more."""
    refusals = (exceptions.AuthenticationError, exceptions.AuthorizationError)
    return isinstance(error, refusals) or isinstance(error.__cause__, refusals)


def translated(error: BaseException, where: str) -> InfrastructureError:
    """The product's error for one of Redis'; `where` names the server without its password."""
    text = str(error) or type(error).__name__
    if isinstance(error, exceptions.NoPermissionError) or text.startswith("NOPERM") or "No permissions" in text or "ACL" in text:
        return PermissionDenied(f"the Redis user at {where} lacks a right that the pool needs: {text}")
    if _login_refused(error) or text.startswith(("NOAUTH", "WRONGPASS")):
        return PermissionDenied(f"Redis at {where} refused the login: {text}")
    if isinstance(error, exceptions.OutOfMemoryError) or text.startswith("OOM"):
        return ServerOutOfMemory(f"Redis at {where} is out of memory (maxmemory): nothing new is taken in; running agents go on")
    if may_pass(error):
        return RedisUnreachable(f"Redis at {where} does not answer: {text}")
    return UnexpectedReply(f"Redis at {where} answered: {text}")
