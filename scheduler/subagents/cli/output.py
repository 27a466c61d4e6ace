"""What commands print: answers on stdout, notes for the person who watches on stderr."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json
from rich.console import Console
from rich.text import Text

from subagents.cli.errors import plain
from subagents.statuses import Status

if TYPE_CHECKING:
    from rich.console import RenderableType

UNCUT = 1000
"""Columns where nobody watches: a pipe gets every table whole."""

STYLES = {
    Status.QUEUED: "cyan",
    Status.RUNNING: "green",
    Status.WAITING: "blue",
    Status.STOPPING: "yellow",
    Status.COMPLETED: "green",
    Status.STEERED: "green",
    Status.ABORTED: "red",
    Status.STOPPED: "yellow",
    Status.ERROR: "red",
}


@cache
def answers() -> Console:
    """Stdout."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else UNCUT)


@cache
def notes() -> Console:
    """Stderr."""
    return Console(highlight=False, stderr=True, width=None if sys.stderr.isatty() else UNCUT)


def watched() -> bool:
    """True if a person sees stderr, so that progress may be drawn there."""
    return notes().is_terminal


def show(what: RenderableType, *, cut: bool = False) -> None:
    """Print an answer; with `cut`, a line that is too wide for the terminal ends in an ellipsis."""
    if cut:
        answers().print(what, no_wrap=True, overflow="ellipsis", crop=True)
    else:
        answers().print(what, soft_wrap=isinstance(what, str | Text), markup=False)


def note(text: str) -> None:
    """Tell the person who watches."""
    notes().print(Text(plain(text), style="dim"), soft_wrap=True)


def show_json(value: Any) -> None:
    """Print an answer as JSON: models, times and all; indented where a person looks."""
    print(to_json(value, indent=2 if sys.stdout.isatty() else None, inf_nan_mode="constants").decode(), flush=True)


def pretty_json(value: Any) -> str:
    """A value as a person reads it; what could steer a terminal is replaced."""
    text = to_json(value, indent=2, inf_nan_mode="constants").decode()
    return "\n".join(plain(line) for line in text.split("\n"))


def compact_json(value: Any) -> str:
    """A value on one line."""
    return plain(to_json(value, inf_nan_mode="constants").decode())


def duration(seconds: float) -> str:
    """A time span in few letters: `80 ms`, `3.2 s`, `4 min 10 s`, `2 h 05 min`, `3 d 4 h`."""
    seconds = max(seconds, 0.0)
    if seconds < 1:
        return f"{round(seconds * 1000)} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def elapsed(begin: datetime, end: datetime | None = None) -> str:
    """The time from one moment to another, or to now."""
    return duration(((end or datetime.now(UTC)) - begin).total_seconds())


def clock(moment: datetime) -> str:
    """A moment of today as a person's watch shows it, to the millisecond."""
    return moment.astimezone().strftime("%H:%M:%S.%f")[:-3]


def counted(count: int, one: str, many: str | None = None) -> str:
    """`1 agent`, `3 agents`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
