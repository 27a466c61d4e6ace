"""Run many agents on many machines over Redis, in order, under a hard limit, and stop them all with one call."""

from importlib.metadata import version as _version

from subagents.errors import (
    AgentExpired,
    AgentFailed,
    AgentStopped,
    BypassRefused,
    CallerError,
    ForeignSchema,
    InfrastructureError,
    InputTooLarge,
    InvalidArgument,
    InvalidInput,
    KeyConflict,
    ParentStopped,
    PermissionDenied,
    PoolClosed,
    PoolHalted,
    PoolNotFound,
    QueueFull,
    RedisUnreachable,
    ServerOutOfMemory,
    SubagentsError,
    TooDeep,
    UnexpectedReply,
    UnknownAgent,
    UnknownInterrupt,
    UnknownType,
    WaitTimeout,
)
from subagents.handle import AbortAnswer, AgentHandle
from subagents.latch import Latch
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
    "ForeignSchema",
    "InfrastructureError",
    "InputTooLarge",
    "InterruptOutcome",
    "InterruptReport",
    "InterruptedAgent",
    "InvalidArgument",
    "InvalidInput",
    "KeyConflict",
    "Latch",
    "ParentStopped",
    "PermissionDenied",
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
    "ServerOutOfMemory",
    "SpawnRequest",
    "Status",
    "SubagentsError",
    "TooDeep",
    "UnexpectedReply",
    "UnknownAgent",
    "UnknownInterrupt",
    "UnknownType",
    "Usage",
    "WaitTimeout",
    "__version__",
]
