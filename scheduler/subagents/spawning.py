"""Spawning: requests become ids, in order, in as few round trips as they fit in; refusals become typed errors."""

from __future__ import annotations

from collections.abc import Sequence

from subagents import keys
from subagents.errors import (
    BypassRefused,
    CallerError,
    KeyConflict,
    ParentStopped,
    PoolHalted,
    QueueFull,
    TooDeep,
    UnexpectedReply,
    UnknownType,
)
from subagents.lineage import parent_in
from subagents.models import SpawnRequest
from subagents.scripts import calls
from subagents.scripts.gateway import Gateway
from subagents.scripts.replies import Code, Reply

BATCH = 100


async def spawn(gateway: Gateway, prefix: str, requests: Sequence[SpawnRequest]) -> list[str]:
    """Spawn in order and return the ids. Every request is checked before the first is sent; a batch is refused as a whole.

    A repeated call with the same `key` returns the agent of the first (P1).
    """
    wires = [request.wire(keys.new_id()) for request in requests]
    ids: list[str] = []
    for at in range(0, len(wires), BATCH):
        reply = await gateway(calls.spawn(prefix, wires[at : at + BATCH], parent_in(prefix)))
        if reply.code is not Code.SPAWNED:
            refused = _refusal(reply)
            if ids:
                refused.add_note(f"{len(ids)} agents of this call had been spawned before: {', '.join(ids[:3])} …")
            raise refused
        ids += [answer.text(0) for answer in reply.nested(0)]
    return ids


def _refusal(reply: Reply) -> CallerError:
    match reply.code:
        case Code.HALTED:
            return PoolHalted()
        case Code.QUEUE_FULL:
            return QueueFull(reply.number(0))
        case Code.PARENT_STOPPED:
            return ParentStopped(reply.text(0))
        case Code.TOO_DEEP:
            return TooDeep(reply.number(0), tuple(reply.text(1).split(",")))
        case Code.UNKNOWN_TYPE:
            return UnknownType(reply.text(0), tuple(sorted(filter(None, reply.text(1).split(",")))))
        case Code.KEY_CONFLICT:
            return KeyConflict(reply.text(0), reply.text(1))
        case Code.BYPASS_REFUSED:
            return BypassRefused(reply.number(0))
        case _:
            raise UnexpectedReply(f"spawn answered {reply.code}")
