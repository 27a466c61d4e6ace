"""What a failure means to a shell: an exit code, and one line on stderr."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import dataclass
from enum import IntEnum

from subagents import settings
from subagents.errors import AgentOutcome, CallerError, InfrastructureError, RedisUnreachable, UnknownAgent, UnknownType, WaitTimeout


class ExitCode(IntEnum):
    """The exit codes of every command."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    TIMED_OUT = 4
    INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure as it is reported: what kind, in which words, with which exit code."""

    kind: str
    message: str
    exit_code: int

    @property
    def line(self) -> str:
        """The message on one line, without anything that could steer a terminal."""
        return plain(" ".join(self.message.split()))


class CommandFailed(Exception):
    """A command cannot go on, and has said why in its failure."""

    def __init__(self, kind: str, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.failure = Failure(kind, message, exit_code)


def failure_of(error: BaseException) -> Failure | None:
    """How an error is reported; None if it is nothing that a user can have caused."""
    if isinstance(error, CommandFailed):
        return error.failure
    for family, exit_code in _EXIT_CODES.items():
        if isinstance(error, family):
            advice = next((f"; {words}" for kind, words in _ADVICE.items() if isinstance(error, kind)), "")
            return Failure(_kind(type(error)), f"{str(error).rstrip('.')}{advice}" if advice else str(error), exit_code)
    format_message = getattr(error, "format_message", None)
    if format_message is not None:  # typer's usage errors: its own since 0.24, click's before
        return Failure("usage", _usage(error, format_message()), ExitCode.USAGE)
    return None


def report(failure: Failure, *, as_json: bool) -> None:
    """Write a failure to stderr."""
    if as_json:
        text = json.dumps({"error": failure.kind, "message": failure.line}, ensure_ascii=False)
    else:
        coloured = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
        text = f"\x1b[31merror:\x1b[0m {failure.line}" if coloured else f"error: {failure.line}"
    print(text, file=sys.stderr, flush=True)


def plain(text: str) -> str:
    """Text that cannot steer the terminal it is shown on."""
    return "".join(letter if letter.isprintable() else "�" for letter in text)


_EXIT_CODES = {
    CallerError: ExitCode.USAGE,
    InfrastructureError: ExitCode.UNREACHABLE,
    WaitTimeout: ExitCode.TIMED_OUT,
    AgentOutcome: ExitCode.FAILED,
}

_ADVICE: dict[type[BaseException], str] = {
    RedisUnreachable: f"start it, or name another with --redis or {settings.REDIS_URL_VARIABLE}",
    UnknownAgent: "`subagents ps --all` lists those there are",
    UnknownType: "a worker that offers it must have joined once",
}
"""What to do at a command line, where the error itself does not say it."""


def _kind(error: type[BaseException]) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", error.__name__).lower()


def _usage(error: BaseException, message: str) -> str:
    """Typer's words, with the way to the right ones."""
    context = getattr(error, "ctx", None)
    command = getattr(context, "command_path", "subagents")
    return f"{message.rstrip('.')}; see `{command} --help`"
