"""What the server must hold, key by key, if it agrees with the plain model: the data model of the design, section 5, as a function."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple, cast

from plain_pool import PlainPool
from plain_records import Agent, Interrupt, Job

DAY = 86_400_000
Value = str | dict[str, str] | dict[str, float] | list[str] | list[list[str]]


class Key(NamedTuple):
    """A key's value, and the TTL in ms with which it was written (None = for good)."""

    value: Value
    ttl: int | None = None


DUMP = """
local result = {}
for _, key in ipairs(redis.call('KEYS', '*' .. KEYS[1] .. '*')) do
  local kind, value = redis.call('TYPE', key).ok, nil
  if kind == 'string' then value = redis.call('GET', key)
  elseif kind == 'hash' then value = redis.call('HGETALL', key)
  elseif kind == 'zset' then value = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  elseif kind == 'set' then value = redis.call('SMEMBERS', key)
  elseif kind == 'list' then value = redis.call('LRANGE', key, 0, -1)
  elseif string.match(key, '}:events$') then value = nil
  else
    value = {}
    for _, entry in ipairs(redis.call('XRANGE', key, '-', '+')) do value[#value + 1] = entry[2] end
  end
  if value then result[#result + 1] = {key, kind, redis.call('PTTL', key), value} end
end
return cjson.encode(result)
"""
UNORDERED = ("watchers", "interrupts")  # comma-separated sets


def read_dump(text: str) -> dict[str, Key]:
    """The answer of DUMP in the shape of `expected_keys`."""
    found: dict[str, Key] = {}
    for key, kind, ttl, value in cast("list[tuple[str, str, int, list[str]]]", json.loads(text)):
        shaped: Value = value
        if kind == "hash":
            shaped = _sorted_sets(dict(zip(value[::2], value[1::2], strict=True)))
        elif kind == "zset":
            shaped = {member: float(score) for member, score in zip(value[::2], value[1::2], strict=True)}
        elif kind == "set":
            shaped = sorted(value)
        elif key.startswith("arq:job:"):
            shaped = cast("dict[str, str]", json.loads(cast("str", value)))
        found[key] = Key(shaped, None if ttl < 0 else ttl)
    return found


def _sorted_sets(fields: dict[str, str]) -> dict[str, str]:
    return {name: ",".join(sorted(text.split(","))) if name in UNORDERED else text for name, text in fields.items()}


def expected_keys(pool: PlainPool, prefix: str, settings: Mapping[str, str]) -> dict[str, Key]:
    """Every key of the pool except its history."""
    tag = prefix.removeprefix("sa:").removesuffix(":")
    keys: dict[str, Key] = {}
    for name, key in {**_pool(pool, settings), **_queue(pool), **_agents(pool), **_stops(pool), **_workers(pool), **_lists(pool)}.items():
        if key.value or isinstance(key.value, str):
            keys[prefix + name] = key
    return keys | _carrier(pool, tag)


def _pool(pool: PlainPool, settings: Mapping[str, str]) -> dict[str, Key]:
    config = dict(settings) | {
        "schema": "1",
        "max_concurrent": str(pool.limit),
        "paused": str(int(pool.paused)),
        "halted": str(int(pool.halted)),
        "version": str(pool.version),
        "changed_by": pool.changed_by,
        "test_now": str(pool.clock),
    }
    if pool.changed_at is not None:
        config["changed_at"] = str(pool.changed_at)
    if pool.halted:
        config |= {"halt_reason": pool.halt_reason, "halted_by": pool.halted_by}
    keys = {"config": Key(config), "types": Key(pool.types)}
    if pool.last_raw is not None:
        keys["clock"] = Key({"raw": str(pool.last_raw), "now": str(pool.now), "wall": str(pool.wall)})
    if pool.seq:
        keys["seq"] = Key(str(pool.seq))
    if pool.admissions:
        keys["admissions"] = Key(str(pool.admissions))
    return keys


def _queue(pool: PlainPool) -> dict[str, Key]:
    lanes: dict[str, dict[str, float]] = {}
    for agent in pool.agents.values():
        if agent.in_line:
            lanes.setdefault(agent.lane, {})[agent.id] = agent.seq
        if agent.returning:
            lanes.setdefault("@", {})[agent.id] = agent.seq
    sets: dict[str, dict[str, float]] = {"active": {}, "waiting": {}, "bypass": {}, "bypass:held": {}, "started": {}, "stopping": {}}
    for ghost, (place, score) in pool.ghosts.items():
        (lanes.setdefault(place, {}) if place[1:2] == ":" else sets[place])[ghost] = score
    for agent in pool.agents.values():
        if agent.holds_permit:
            sets["active"][agent.id] = agent.lease_end
        if agent.lends_permit:
            sets["waiting"][agent.id] = agent.lease_end
        if agent.bypass and not agent.settled:
            sets["bypass"][agent.id] = float("inf") if agent.held_back else agent.lease_end
        if agent.held_back:
            sets["bypass:held"][agent.id] = agent.seq
        if agent.on_worker:
            sets["started"][agent.id] = agent.seq
        if agent.status == "stopping" and agent.stop_requested_at is not None:
            sets["stopping"][agent.id] = agent.stop_requested_at
    heads: dict[str, dict[str, float]] = {"lanes": {}, "unserved": {}}
    for lane, members in lanes.items():
        heads["lanes" if lane == "@" or pool.served(lane[2:]) else "unserved"][lane] = min(members.values())
    keys = {f"pending:{lane}": Key(members) for lane, members in lanes.items()}
    return keys | {name: Key(members) for name, members in (sets | heads).items()}


def record_fields(agent: Agent) -> dict[str, str]:
    """The stored record of an agent."""
    fields = {
        "status": agent.status,
        "seq": str(agent.seq),
        "type": agent.type,
        "scopes": ",".join(agent.scopes),
        "survive": str(int(agent.survive)),
        "fingerprint": agent.fingerprint,
        "enqueued_at": str(agent.enqueued_at),
        "attempt": str(agent.attempt),
        "run": "1",
        "retries": str(agent.retries),
        "depth": str(agent.depth),
    }
    maybe: dict[str, str | int | None] = {
        "description": agent.description or None,
        "timeout": agent.timeout or None,
        "stall_timeout": agent.stall_timeout or None,
        "key": agent.key or None,
        "bypass": "1" if agent.bypass else None,
        "parent": agent.ancestors[-1] if agent.ancestors else None,
        "root": agent.root if agent.ancestors else None,
        "ancestors": ",".join(agent.ancestors) or None,
        "token": agent.token.value if agent.token else None,
        "worker": agent.worker,
        "dispatches": agent.dispatches or None,
        "returning": "1" if agent.returning else None,
        "admitted_at": agent.admitted_at,
        "started_at": agent.started_at,
        "stop_requested_at": agent.stop_requested_at,
        "ended_at": agent.ended_at,
        "watchers": ",".join(sorted(agent.watchers)) or None,
        "interrupts": ",".join(sorted(agent.noted)) or None,
    }
    return fields | {name: str(fact) for name, fact in maybe.items() if fact is not None} | agent.facts


def _agents(pool: PlainPool) -> dict[str, Key]:
    keys: dict[str, Key] = {}
    for agent in pool.agents.values():
        ttl = agent.ttl if agent.settled else None
        keys[f"agent:{agent.id}"] = Key(record_fields(agent), ttl)
        keys[f"input:{agent.id}"] = Key(agent.input, ttl)
        if agent.result is not None:
            keys[f"result:{agent.id}"] = Key(agent.result, ttl)
        if agent.said:
            keys[f"events:{agent.id}"] = Key([["kind", kind, "data", data] for kind, data in agent.said], ttl)
    for agent in pool.tombstones.values():
        lasting = f"{agent.status}|{agent.type}|{agent.root}|{','.join(agent.scopes)}"
        keys[f"gone:{agent.id}"] = Key(lasting, pool.facts.keep_tombstone)
    for key, (holder, settled) in pool.keys.items():
        keys[f"key:{key}"] = Key(holder, pool.facts.keep_tombstone if settled else None)
    return keys


def _stops(pool: PlainPool) -> dict[str, Key]:
    keys: dict[str, Key] = {}
    for scope in {mark for agent in pool.unsettled() for mark in agent.marks}:
        keys[f"scope:{scope}"] = Key({a.id: float(a.seq) for a in pool.unsettled(scope)})
    keys["cutoff"] = Key({scope: str(at) for (scope, forced), at in pool.cutoffs.items() if not forced})
    keys["cutoff:forced"] = Key({scope: str(at) for (scope, forced), at in pool.cutoffs.items() if forced})
    causes = {f"{scope}|reason": reason for scope, (reason, _) in pool.causes.items()}
    keys["cutoff:cause"] = Key(causes | {f"{scope}|by": by for scope, (_, by) in pool.causes.items()})
    opened = pool.open_interrupts()
    keys["interrupts"] = Key({i.id: float(i.at) for i in opened})
    keys["sweeping"] = Key({scope: ",".join(i.id for i in opened if i.scope == scope) for scope in {i.scope for i in opened}})
    for interrupt in pool.interrupts.values():
        keys |= _interrupt(interrupt)
    return keys


def _interrupt(interrupt: Interrupt) -> dict[str, Key]:
    name = f"interrupt:{interrupt.id}"
    fields = {
        "scope": interrupt.scope,
        "cutoff": str(interrupt.cutoff),
        "forced": str(int(interrupt.forced)),
        "kill": str(int(interrupt.kill)),
        "reason": interrupt.reason,
        "by": interrupt.by,
        "at": str(interrupt.at),
        "cursor": str(interrupt.cursor),
        "swept": str(int(interrupt.swept)),
    }
    if interrupt.swept:  # before that it is an upper bound, compared elsewhere
        fields["queued_stopped"] = str(len(interrupt.queued))
    if interrupt.completed_at is not None:
        fields["completed_at"] = str(interrupt.completed_at)
    if interrupt.watchers:
        fields["watchers"] = ",".join(sorted(interrupt.watchers))
    accounts = {agent: f"{worker}|{'' if ended is None else ended}" for agent, (worker, ended) in interrupt.accounts.items()}
    left = {agent: float(seq) for agent, seq in interrupt.left.items()}
    return {name: Key(fields, DAY), f"{name}:agents": Key(accounts, DAY), f"{name}:left": Key(left, DAY)}


def _workers(pool: PlainPool) -> dict[str, Key]:
    keys = {"workers": Key({w.name: float(w.lease_end) for w in pool.workers.values()})}
    for worker in pool.workers.values():
        if worker.recorded:
            keys[f"worker:{worker.name}"] = Key(
                {
                    "facts": "{}",
                    "types": ",".join(worker.types),
                    "joined_at": str(worker.joined_at),
                    "seen_at": str(worker.seen_at),
                    "running": str(worker.running),
                },
                pool.facts.lease * 20,
            )
    for type, servers in pool.serving.items():
        keys[f"serving:{type}"] = Key(sorted(servers))
    for name in {a.worker for a in pool.agents.values() if a.on_worker and a.worker is not None}:
        keys[f"held:{name}"] = Key(sorted(a.id for a in pool.held_by(name)))
    for name, (nonce, ids) in pool.claims.items():
        keys[f"claim:{name}"] = Key({"nonce": nonce, "ids": ",".join(ids)}, pool.facts.lease * 4)
    for type in pool.awake:
        keys[f"wake:{type}"] = Key(["1"])
    return keys


def _lists(pool: PlainPool) -> dict[str, Key]:
    entries: dict[str, dict[str, float]] = {}
    listed = [(a, set(pool.lists_of(a))) for a in pool.agents.values()] + list(pool.faded.values())
    for agent, lists in listed:
        for name in lists:
            entries.setdefault(f"index:{name}", {})[agent.id] = agent.seq
    keys = {name: Key(members) for name, members in entries.items()}
    twice = 2 * pool.facts.keep_settled
    for scope, expiring in pool.scope_lists.items():
        name = f"index:scope:{scope}"
        if name in keys and expiring:
            keys[name] = Key(keys[name].value, twice)
    for root, expiring in pool.tree_lists.items():
        name = f"index:tree:{root}"
        if name in keys and expiring:
            keys[name] = Key(keys[name].value, twice)
    settled = {a.id: float(a.drop_at) for a, _ in listed if a.settled}
    return keys | {"settled": Key(settled)}


def _carrier(pool: PlainPool, tag: str) -> dict[str, Key]:
    keys: dict[str, Key] = {}
    queues: dict[str, dict[str, float]] = {}
    for job in pool.jobs:
        name = job_id(job, tag)
        if job.queued:
            queues.setdefault(f"arq:queue:{tag}:{job.type}", {})[name] = job.number
        if job.body:
            body: dict[str, object] = {"t": None, "f": "run_agent", "a": [job.agent_id, job.token.value], "k": {}, "et": job.et}
            keys[f"arq:job:{name}"] = Key(cast("dict[str, str]", body), 30 * DAY)
        if job.in_progress:
            keys[f"arq:in-progress:{name}"] = Key("1")
        if job.retry:
            keys[f"arq:retry:{name}"] = Key("1")
    return keys | {name: Key(members) for name, members in queues.items()}


def job_id(job: Job, tag: str) -> str:
    return f"{tag}:{job.agent_id}:{job.token.value}"
