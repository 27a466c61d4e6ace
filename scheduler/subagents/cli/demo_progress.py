"""What the demo's agents do, read from the pool's history; and when the limit is to change on the way. No input, no output."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from subagents.errors import InvalidArgument
from subagents.models import PoolEvent
from subagents.settings import max_concurrent
from subagents.statuses import SETTLED, Status

BECOMES = {
    "created": Status.QUEUED,
    "redispatched": Status.QUEUED,
    "started": Status.RUNNING,
    "resumed": Status.RUNNING,
    "adopted": Status.RUNNING,
    "waiting": Status.WAITING,
    "stopping": Status.STOPPING,
} | {status.value: status for status in SETTLED}


@dataclass(slots=True)
class Progress:
    """The agents of one tree, and what their admissions prove: never above the limit, always in spawn order."""

    root: str
    work_type: str
    statuses: dict[str, Status] = field(default_factory=dict[str, Status])
    types: dict[str, str] = field(default_factory=dict[str, str])
    admitted: list[int] = field(default_factory=list[int])
    peak: int = 0
    limits: list[int] = field(default_factory=list[int])
    within_limit: bool = True

    def take(self, event: PoolEvent) -> None:
        """Take in the next event of the history; those of other trees change nothing."""
        if event.kind == "limit" and event.max_concurrent is not None and event.max_concurrent != self.limit:
            self.limits.append(event.max_concurrent)
        if not self._is_ours(event):
            return
        assert event.agent_id is not None
        if event.kind == "created":
            self.types[event.agent_id] = event.facts.get("type", "")
        if event.kind == "admitted" and event.seq not in self.admitted:
            self.admitted.append(event.seq)
        if event.kind in ("admitted", "resumed") and event.active is not None and event.max_concurrent is not None:
            self.peak = max(self.peak, event.active)
            self.within_limit = self.within_limit and event.active <= event.max_concurrent
        if event.kind in BECOMES:
            self.statuses[event.agent_id] = BECOMES[event.kind]

    @property
    def limit(self) -> int | None:
        """The limit as it was last heard of."""
        return self.limits[-1] if self.limits else None

    @property
    def in_order(self) -> bool:
        """True if first admissions came in spawn order."""
        return self.admitted == sorted(self.admitted)

    @property
    def pieces(self) -> int:
        """How many pieces of the work there are, as far as they are spawned."""
        return sum(type == self.work_type for type in self.types.values())

    @property
    def pieces_done(self) -> int:
        """How many of them have settled."""
        return sum(self.statuses[id].settled for id, type in self.types.items() if type == self.work_type)

    def count(self, status: Status) -> int:
        """How many agents stand there."""
        return sum(at is status for at in self.statuses.values())

    def running(self) -> list[str]:
        """The ids of those that run."""
        return [id for id, status in self.statuses.items() if status is Status.RUNNING]

    @property
    def settled(self) -> int:
        """How many agents have settled."""
        return sum(status.settled for status in self.statuses.values())

    def _is_ours(self, event: PoolEvent) -> bool:
        if event.kind == "created":
            return event.agent_id == self.root or event.facts.get("parent") in self.types
        return event.agent_id in self.types


@dataclass(frozen=True, slots=True)
class LimitChange:
    """A limit, and when it is set: after so many seconds, or once that share of the work is done."""

    limit: int
    seconds: float | None
    share: float

    def is_due(self, progress: Progress, seconds: float) -> bool:
        """True once its time has come."""
        if self.seconds is not None:
            return seconds >= self.seconds
        return progress.pieces > 0 and progress.pieces_done >= self.share * progress.pieces


def read_limits(text: str | None) -> Sequence[LimitChange]:
    """Read `8`, `2,8` (spread evenly over the work) or `2@3,8@6` (after so many seconds)."""
    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",")]
    return [_limit_change(part, share=(at + 1) / (len(parts) + 1)) for at, part in enumerate(parts)]


def _limit_change(text: str, share: float) -> LimitChange:
    found = re.fullmatch(r"(-?[0-9]{1,18})(?:@([0-9]{1,6}(?:\.[0-9]{1,3})?))?", text)
    if found is None:
        raise InvalidArgument(f"--limit {text!r} is refused: expected whole numbers such as 8 or 2,8, or with seconds 2@3,8@6")
    limit = max_concurrent(int(found[1]))
    if limit == 0:
        raise InvalidArgument("--limit 0 would hold the demo for ever: expected 1 or more")
    return LimitChange(limit, float(found[2]) if found[2] else None, share)
