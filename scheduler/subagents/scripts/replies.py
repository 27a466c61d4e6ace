"""The first word of every script's answer, in one enum, and the shape of what follows it.

A test compares the enum with the headers of the scripts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import cast

from subagents.errors import UnexpectedReply


class Code(StrEnum):
    """What a script says first."""

    ADMITTED = "admitted"
    ALREADY_TERMINAL = "already_terminal"
    BYPASS_REFUSED = "bypass_refused"
    CHANGED = "changed"
    CLAIMED = "claimed"
    CLEARED = "cleared"
    CONSUMED = "consumed"
    CREATED = "created"
    DUPLICATE = "duplicate"
    EMITTED = "emitted"
    EXISTS = "exists"
    EXPIRED = "expired"
    FINISHED = "finished"
    FOLLOWING = "following"
    FOREIGN_SCHEMA = "foreign_schema"
    GONE = "gone"
    HALTED = "halted"
    HELD = "held"
    INTERRUPTED = "interrupted"
    JOINED = "joined"
    KEY_CONFLICT = "key_conflict"
    LEADING = "leading"
    LEFT = "left"
    LIMIT = "limit"
    LOST = "lost"
    NEW = "new"
    NO_POOL = "no_pool"
    NO_RIGHT = "no_right"
    OUT_OF_BOUNDS = "out_of_bounds"
    PAGE = "page"
    PARENT_STOPPED = "parent_stopped"
    PROVEN = "proven"
    PURGED = "purged"
    QUEUED = "queued"
    QUEUE_FULL = "queue_full"
    REAPED = "reaped"
    RECORD = "record"
    RECORDS = "records"
    RELEASED = "released"
    RENEWED = "renewed"
    REPORT = "report"
    RETAINED = "retained"
    RUNNING = "running"
    SETTLED = "settled"
    SPAWNED = "spawned"
    STALE = "stale"
    STARTED = "started"
    STATISTICS = "statistics"
    STATS = "stats"
    STOP = "stop"
    STOPPED = "stopped"
    STOPPING = "stopping"
    SWEPT = "swept"
    TENDED = "tended"
    TOO_DEEP = "too_deep"
    UNCHANGED = "unchanged"
    UNKNOWN = "unknown"
    UNKNOWN_TYPE = "unknown_type"
    UNKNOWN_WORKER = "unknown_worker"
    UNSETTLED = "unsettled"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True)
class Reply:
    """A script's answer: its code, and the rest, read by position."""

    code: Code
    rest: tuple[object, ...]

    @classmethod
    def of(cls, raw: object) -> Reply:
        """Read an answer as the server sent it."""
        if not isinstance(raw, list) or not raw:
            raise UnexpectedReply(f"a script answered {raw!r}, expected a list that begins with a code")
        items = cast("list[object]", raw)
        try:
            return cls(Code(str(items[0])), tuple(items[1:]))
        except ValueError:
            raise UnexpectedReply(f"a script answered with an unknown code {items[0]!r}") from None

    def text(self, at: int) -> str:
        """The text at a position after the code."""
        return str(self.rest[at])

    def number(self, at: int) -> int:
        """The whole number at a position after the code."""
        return int(float(str(self.rest[at])))

    def flag(self, at: int) -> bool:
        """The flag at a position after the code."""
        return str(self.rest[at]) == "1"

    def texts(self, start: int = 0) -> tuple[str, ...]:
        """Everything from a position on, as text."""
        return tuple(str(item) for item in self.rest[start:])

    def list(self, at: int) -> Sequence[object]:
        """The list at a position after the code."""
        item = self.rest[at]
        if not isinstance(item, list):
            raise UnexpectedReply(f"expected a list after {self.code}, got {item!r}")
        return cast("list[object]", item)

    def lists(self, start: int = 0) -> Iterator[Sequence[object]]:
        """Every list from a position on."""
        return (self.list(at) for at in range(start, len(self.rest)))

    def nested(self, at: int) -> tuple[Reply, ...]:
        """The answers inside the list at a position."""
        return tuple(Reply.of(item) for item in self.list(at))


def pairs(flat: Sequence[object]) -> dict[str, str]:
    """A flat list of field, value, field, value as a mapping; a later value of a field stands."""
    return {str(flat[at]): str(flat[at + 1]) for at in range(0, len(flat) - 1, 2)}
