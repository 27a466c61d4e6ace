"""What callers send and receive: frozen models, snapshots by value (S6)."""

from subagents.models.events import AgentEvent, PoolEvent
from subagents.models.record import AgentRecord, Usage
from subagents.models.report import InterruptedAgent, InterruptOutcome, InterruptReport
from subagents.models.request import OnInterrupt, SpawnRequest
from subagents.models.stats import PoolStats, SemaphoreStatistics

__all__ = [
    "AgentEvent",
    "AgentRecord",
    "InterruptOutcome",
    "InterruptReport",
    "InterruptedAgent",
    "OnInterrupt",
    "PoolEvent",
    "PoolStats",
    "SemaphoreStatistics",
    "SpawnRequest",
    "Usage",
]
