"""What happened: events of the pool's history, and what agents say."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict


class PoolEvent(BaseModel):
    """One transition, written by the script that made it.

    `kind` is one of created, admitted, started, waiting, resumed, stopping, completed, steered, aborted, stopped, error, interrupt,
    limit, paused, unpaused, halted, unhalted, lost, redispatched, adopted, corrupt, failover. `admitted` and `limit` carry
    `active` and `max_concurrent` as they were in that same step.
    """

    model_config = ConfigDict(frozen=True)

    cursor: str
    kind: str
    agent_id: str | None
    seq: int
    at: datetime
    active: int | None = None
    max_concurrent: int | None = None
    facts: dict[str, str] = {}


class AgentEvent(BaseModel):
    """Something an agent said with `ctx.emit`, or its terminal status; `cursor` resumes the stream after it."""

    model_config = ConfigDict(frozen=True)

    cursor: str
    kind: str
    at: datetime
    data: Any = None
