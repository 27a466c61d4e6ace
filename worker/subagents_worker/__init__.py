"""What a worker image imports: declare agents with `@agent`, run them with `subagents worker MODULE`."""

from subagents_worker.context import AgentContext, ChildHandle
from subagents_worker.registry import AgentType, Registry, agent

__all__ = ["AgentContext", "AgentType", "ChildHandle", "Registry", "agent"]
