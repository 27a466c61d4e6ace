"""How a run ended, decided purely: what happened -> one frozen `Settlement`, persisted elsewhere."""

from __future__ import annotations

import traceback
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import ValidationError
from pydantic_core import to_json

from subagents.errors import InvalidInput
from subagents.scripts.calls import Settlement, Spec
from subagents.settings import MAX_RESULT_BYTES
from subagents.statuses import ErrorKind, Outcome

ERROR_TEXT_BOUND = 8_000


class Cause(StrEnum):
    """Why a run was told to end, if it was."""

    STOP = "stop"
    TIMEOUT = "timeout"
    STALLED = "stalled"
    SHUTDOWN = "shutdown"
    LEASE_LOST = "lease_lost"


@dataclass(frozen=True, slots=True)
class Ending:
    """What was seen of the end of a run: why it was told to end, and the value or the failure that came out of it."""

    cause: Cause | None = None
    value: Any = None
    failure: BaseException | None = None

    @property
    def cancelled(self) -> bool:
        """True if the agent's code was cut off."""
        import asyncio

        return isinstance(self.failure, asyncio.CancelledError)


class AgentExit(Exception):
    """An agent's code asked for the end of its process (`sys.exit`, Ctrl-C): it ends the agent, not its neighbours."""


def decide(spec: Spec, ending: Ending) -> Settlement | None:
    """The settlement of a run; None if its lease is somebody else's by now and nothing may be written."""
    match ending.cause:
        case Cause.LEASE_LOST:
            return None
        case Cause.STOP:
            return (
                _with_result(spec, Outcome.STOPPED, ending) if ending.failure is None else Settlement(spec.id, spec.token, Outcome.STOPPED)
            )
        case Cause.TIMEOUT:
            return _error(spec, ErrorKind.TIMEOUT, "it ran longer than its timeout")
        case Cause.STALLED:
            return _error(spec, ErrorKind.STALLED, "it gave no sign of life within its stall_timeout")
        case Cause.SHUTDOWN if ending.cancelled:
            return Settlement(spec.id, spec.token, Outcome.HANDED_BACK, ErrorKind.SHUTDOWN, "its worker shut down before it ended")
        case _:
            return _own_end(spec, ending)


def _own_end(spec: Spec, ending: Ending) -> Settlement:
    if ending.failure is None:
        return _with_result(spec, Outcome.COMPLETED, ending)
    if ending.cancelled:
        return _error(spec, ErrorKind.AGENT_ERROR, "its code cancelled itself")
    if isinstance(ending.failure, InvalidInput):
        return _error(spec, ErrorKind.INVALID_INPUT, str(ending.failure))
    return _error(spec, ErrorKind.AGENT_ERROR, error_text(ending.failure))


def _with_result(spec: Spec, outcome: Outcome, ending: Ending) -> Settlement:
    """A result that JSON cannot say, or that is too large, is an error of its kind (P12)."""
    if isinstance(ending.value, Iterator | AsyncIterator):  # pydantic would use it up and call it a list
        return _error(spec, ErrorKind.UNSERIALISABLE_RESULT, "its result is no JSON: it is an iterator")
    try:
        encoded = to_json(ending.value, inf_nan_mode="constants").decode()
    except Exception as unserialisable:
        return _error(spec, ErrorKind.UNSERIALISABLE_RESULT, f"its result is no JSON: {unserialisable}")
    if len(encoded) > MAX_RESULT_BYTES:
        text = f"its result is {len(encoded):,} bytes of JSON, the bound is {MAX_RESULT_BYTES:,}"
        return _error(spec, ErrorKind.RESULT_TOO_LARGE, text)
    return Settlement(spec.id, spec.token, outcome, result=encoded)


def _error(spec: Spec, kind: ErrorKind, text: str) -> Settlement:
    sayable = text[:ERROR_TEXT_BOUND].encode(errors="backslashreplace").decode()  # a file name may hold what UTF-8 cannot say
    return Settlement(spec.id, spec.token, Outcome.ERROR, kind, sayable[:ERROR_TEXT_BOUND])


def error_text(failure: BaseException) -> str:
    """A failure as people read it: what it says first, then where; never raises, whatever the exception holds (P12)."""
    try:
        head = "".join(traceback.format_exception_only(failure)).strip()
        if isinstance(failure, AgentExit | ValidationError):
            return head
        frames = traceback.extract_tb(failure.__traceback__)
        where = "".join(traceback.format_list(frames[-5:]))
        return f"{head}\n{where}".strip()
    except Exception:
        return type(failure).__name__
