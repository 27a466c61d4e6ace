"""What the reading scripts must answer if the server agrees with the plain model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from expected_keys import record_fields
from plain_pool import PlainPool
from plain_records import Agent


def seen_status(pool: PlainPool, agent: Agent) -> str:
    """An agent that an interrupt hit reads stopped or stopping at once, before its record is swept (I14)."""
    if agent.settled or agent.status == "stopping" or not pool.hit(agent):
        return agent.status
    return "stopping" if agent.on_worker else "stopped"


def view(pool: PlainPool, agent: Agent) -> dict[str, str]:
    """The record as people see it."""
    fields = record_fields(agent) | {"id": agent.id}
    status = seen_status(pool, agent)
    if status != agent.status:
        reason, by = pool.cause(agent)
        fields |= {"status": status, "stop_reason": reason, "stopped_by": by}
        if status == "stopped":
            fields["ended_at"] = str(pool.wall)
    if status == "queued":
        fields |= _waiting(pool, agent)
    if agent.result is not None:
        fields["result"] = agent.result
    return fields


def _waiting(pool: PlainPool, agent: Agent) -> dict[str, str]:
    if agent.token:
        return {"waiting_reason": "worker"}
    if agent.bypass:
        return {"waiting_reason": "held"}
    if not pool.served(agent.type):
        return {"waiting_reason": "no_worker"}
    reason = "permit"
    if pool.halted:
        reason = "halted"
    elif pool.paused:
        reason = "paused"
    elif pool.limit == 0:
        reason = "limit"
    seqs = [a.seq for a in pool.agents.values() if a.in_line and pool.served(a.type)]
    seqs += [seq for place, seq in pool.ghosts.values() if place[1:2] == ":" and pool.served(place[2:])]
    return {"waiting_reason": reason, "queue_position": str(1 + sum(seq < agent.seq for seq in seqs))}


def get(pool: PlainPool, client: str, ids: list[str]) -> list[object]:
    """The get script: snapshots, and the client is remembered."""
    pool.tick()
    answer: list[object] = ["records"]
    for agent_id in ids:
        agent = pool.agents.get(agent_id)
        if agent is None:
            answer.append(["expired" if agent_id in pool.tombstones else "unknown", agent_id])
            continue
        if client and not agent.settled and client not in agent.watchers:
            agent.watchers.append(client)
        answer.append(["record", view(pool, agent)])
    return answer


def matching(pool: PlainPool, status: str, type: str, scope: str, tree: str) -> list[str]:
    """What a walk through all pages of a list finds: newest first. Entries of records that are gone are dropped on the way."""
    pool.tick()
    index = "all"
    if tree:
        index = f"tree:{tree}"
    elif scope:
        index = f"scope:{scope}"
    elif type:
        index = f"type:{type}"
    if status in ("running", "waiting", "stopping") or (status == "queued" and not tree and not scope):
        walked = "unsettled"
    elif tree or scope or status in ("", "stopped"):
        walked = index
    else:
        walked = f"status:{status}"
    for _, lists in pool.faded.values():
        lists.discard(walked)
    found = [a for a in pool.agents.values() if index in pool.lists_of(a)]
    found = [a for a in found if (not status or seen_status(pool, a) == status) and (not type or a.type == type)]
    found = [a for a in found if not scope or scope in a.scopes]
    return [a.id for a in sorted(found, key=lambda a: -a.seq)]


def stats(pool: PlainPool) -> dict[str, str]:
    """Every number of the pool, counted anew."""
    pool.tick()
    line = [a for a in pool.agents.values() if a.in_line]
    bypass = [a for a in pool.unsettled() if a.bypass]
    held = [a for a in bypass if a.held_back]
    ghosts = [place for place, _ in pool.ghosts.values()]
    lanes = [place for place in ghosts if place[1:2] == ":"]
    heads: dict[str, Agent] = {}
    for agent in sorted(line, key=lambda a: a.seq):
        if pool.served(agent.type):
            heads.setdefault(agent.lane, agent)
    for ghost_lane, ghost_seq in pool.ghosts.values():
        if ghost_lane in heads and ghost_seq < heads[ghost_lane].seq:
            del heads[ghost_lane]
    oldest = min((a.enqueued_at for a in heads.values()), default=None)
    return {
        "max_concurrent": str(pool.limit),
        "active": str(pool.active()),
        "queued": str(sum(pool.served(a.type) for a in line) + sum(pool.served(g[2:]) for g in lanes) + len(held)),
        "unserved": str(sum(not pool.served(a.type) for a in line) + sum(not pool.served(g[2:]) for g in lanes)),
        "waiting": str(sum(a.lends_permit for a in pool.agents.values()) + ghosts.count("waiting")),
        "bypass": str(len(bypass) - len(held) + ghosts.count("bypass")),
        "stopping": str(sum(a.status == "stopping" for a in pool.agents.values())),
        "paused": str(int(pool.paused)),
        "halted": str(int(pool.halted)),
        "oldest_wait_ms": "" if oldest is None else str(pool.wall - oldest),
        "workers": str(sum(w.lease_end >= pool.now for w in pool.workers.values())),
        "unsettled": str(len(pool.unsettled())),
        "version": str(pool.version),
        "lease": str(pool.facts.lease),
    }


def unsettled(pool: PlainPool, scope: str) -> int:
    """Those that an interrupt hit before they started count as settled."""
    return sum(not (a.status == "queued" and pool.hit(a)) for a in pool.unsettled(scope))


class Account(NamedTuple):
    """What a report says."""

    wall: int
    now: int
    complete: bool
    facts: dict[str, str]
    agents: dict[str, str]
    left: tuple[tuple[str, str, str], ...]


def report(pool: PlainPool, interrupt_id: str, client: str) -> Account | None:
    """The account of an interrupt; its `queued_stopped` stands for itself only once the sweep is through."""
    interrupt = pool.interrupts.get(interrupt_id)
    if interrupt is None:
        return None
    pool.tick()
    complete = interrupt.swept and not interrupt.left
    if client and not complete and client not in interrupt.watchers:
        interrupt.watchers.append(client)
    left: list[tuple[str, str, str]] = []
    for agent_id in sorted(interrupt.left, key=lambda i: interrupt.left[i]):
        agent = pool.agents[agent_id]
        worker = pool.workers.get(agent.worker or "")
        left.append((agent_id, str(agent.lease_end), str(worker.lease_end) if worker else ""))
    accounts = {agent: f"{worker}|{'' if ended is None else ended}" for agent, (worker, ended) in interrupt.accounts.items()}
    facts = {"scope": interrupt.scope, "cutoff": str(interrupt.cutoff), "at": str(interrupt.at), "reason": interrupt.reason}
    facts |= {"by": interrupt.by, "swept": str(int(interrupt.swept))}
    facts["completed_at"] = "" if interrupt.completed_at is None else str(interrupt.completed_at)
    if interrupt.swept:
        facts["queued_stopped"] = str(len(interrupt.queued))
    return Account(pool.wall, pool.now, complete, facts, accounts, tuple(left))


def field_of(record: Sequence[object], name: str) -> str:
    """A field of a record in an answer; a later value stands."""
    flat = [str(item) for item in record[1:]]
    return next(flat[at + 1] for at in range(len(flat) - 2, -1, -2) if flat[at] == name)
