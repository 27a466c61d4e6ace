"""What a pool knows of one agent."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import from_json

from subagents.statuses import ErrorKind, Status


class Usage(BaseModel):
    """What an agent has used, as it reported it."""

    model_config = ConfigDict(frozen=True)

    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached: int = 0
    tool_uses: int = 0
    turns: int = 0
    compactions: int = 0
    cost: float = 0.0


class AgentRecord(BaseModel):
    """A snapshot of one agent: nothing done to it changes the agent (S6).

    `result` and `progress` are whatever JSON the agent gave. `queue_position` counts from 1 and is there only while the agent is
    queued for a permit; `waiting_reason` says why it is not running: `permit`, `worker`, `no_worker`, `paused`, `halted`, `limit`, `held`.
    """

    model_config = ConfigDict(frozen=True)

    id: str
    type: str
    status: Status
    seq: int
    scopes: tuple[str, ...] = ()
    parent_id: str | None = None
    depth: int = 0
    description: str | None = None
    result: Any = None
    error: str | None = None
    error_kind: ErrorKind | None = None
    stop_reason: str | None = None
    stopped_by: str | None = None
    attempt: int = 0
    run: int = 1
    worker: str | None = None
    queue_position: int | None = None
    waiting_reason: str | None = None
    progress: Any = None
    enqueued_at: datetime
    admitted_at: datetime | None = None
    started_at: datetime | None = None
    stop_requested_at: datetime | None = None
    ended_at: datetime | None = None
    usage: Usage = Field(default_factory=Usage)

    @property
    def settled(self) -> bool:
        """True once the run has its terminal status."""
        return self.status.settled

    @classmethod
    def from_fields(cls, fields: Mapping[str, str]) -> Self:
        """Read the flat fields of a stored record."""
        return cls(
            id=fields["id"],
            type=fields["type"],
            status=Status(fields["status"]),
            seq=int(fields["seq"]),
            scopes=tuple(fields["scopes"].split(",")) if fields.get("scopes") else (),
            parent_id=fields.get("parent"),
            depth=int(fields.get("depth", 0)),
            description=fields.get("description"),
            result=_json(fields.get("result")),
            error=fields.get("error"),
            error_kind=ErrorKind(fields["error_kind"]) if "error_kind" in fields else None,
            stop_reason=fields.get("stop_reason") or None,
            stopped_by=fields.get("stopped_by") or None,
            attempt=int(fields.get("attempt", 0)),
            run=int(fields.get("run", 1)),
            worker=fields.get("worker"),
            queue_position=int(fields["queue_position"]) if "queue_position" in fields else None,
            waiting_reason=fields.get("waiting_reason"),
            progress=_json(fields.get("progress")),
            enqueued_at=moment(fields["enqueued_at"]),
            admitted_at=_moment_or_none(fields.get("admitted_at")),
            started_at=_moment_or_none(fields.get("started_at")),
            stop_requested_at=_moment_or_none(fields.get("stop_requested_at")),
            ended_at=_moment_or_none(fields.get("ended_at")),
        )


def moment(stamp: str) -> datetime:
    """A stored time (ms since the epoch) as an aware datetime."""
    return datetime.fromtimestamp(int(stamp) / 1000, UTC)


def _moment_or_none(stamp: str | None) -> datetime | None:
    return moment(stamp) if stamp else None


def _json(text: str | None) -> Any:
    return from_json(text) if text else None
