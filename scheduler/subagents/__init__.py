"""Run many agents on many machines over Redis, in order, under a hard limit, and stop them all with one call."""

from importlib.metadata import version as _version

from subagents.errors import (
    AgentExpired,
    AgentFailed,
    AgentStopped,
    BypassRefused,
    CallerError,
    InfrastructureError,
    InputTooLarge,
    InvalidArgument,
    InvalidInput,
    KeyConflict,
    ParentStopped,
    PoolClosed,
    PoolHalted,
    PoolNotFound,
    QueueFull,
    RedisUnreachable,
    SubagentsError,
    TooDeep,
    UnknownAgent,
    UnknownType,
    WaitTimeout,
)
from subagents.handle import AbortAnswer, AgentHandle
from subagents.listing import AgentPage
from subagents.models import (
    AgentEvent,
    AgentRecord,
    InterruptedAgent,
    InterruptOutcome,
    InterruptReport,
    PoolEvent,
    PoolStats,
    SpawnRequest,
    Usage,
)
from subagents.pool import Pool
from subagents.scope import Scope
from subagents.semaphore import Semaphore
from subagents.statuses import ErrorKind, Status

__version__ = _version("subagents")

__all__ = [
    "AbortAnswer",
    "AgentEvent",
    "AgentExpired",
    "AgentFailed",
    "AgentHandle",
    "AgentPage",
    "AgentRecord",
    "AgentStopped",
    "BypassRefused",
    "CallerError",
    "ErrorKind",
    "InfrastructureError",
    "InputTooLarge",
    "InterruptOutcome",
    "InterruptReport",
    "InterruptedAgent",
    "InvalidArgument",
    "InvalidInput",
    "KeyConflict",
    "ParentStopped",
    "Pool",
    "PoolClosed",
    "PoolEvent",
    "PoolHalted",
    "PoolNotFound",
    "PoolStats",
    "QueueFull",
    "RedisUnreachable",
    "Scope",
    "Semaphore",
    "SpawnRequest",
    "Status",
    "SubagentsError",
    "TooDeep",
    "UnknownAgent",
    "UnknownType",
    "Usage",
    "WaitTimeout",
    "__version__",
]
