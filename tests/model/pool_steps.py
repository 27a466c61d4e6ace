"""Single steps of the state machine: each picks its subject, makes one call, and compares. Rules are composed of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar, cast

import plain_views as views
from expected_keys import job_id
from hypothesis.stateful import RuleBasedStateMachine
from plain_pool import PlainPool
from plain_records import Agent, Job, Worker
from plain_runs import Answer
from pool_bench import PREFIX, TAG, Bench

from subagents.errors import SubagentsError
from subagents.models.request import SpawnRequest
from subagents.scripts import calls
from subagents.scripts.calls import Settlement

T = TypeVar("T")
TYPES, SCOPES, WORKERS = ("a", "b"), ("s", "t"), ("w1", "w2", "w3")
OUTCOMES = ("completed", "steered", "aborted", "error")
LARGE = 50
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


class PoolSteps(RuleBasedStateMachine):
    """What can be done to the pool."""

    def __init__(self, bench: Bench) -> None:
        super().__init__()
        self.bench = bench
        self.count = 0
        self.past: list[tuple[str, str]] = []  # every id and token that a worker has ever seen
        self.ids: list[str] = []
        self.leader = ""
        self.aborts: list[tuple[str, str]] = []  # id and nonce
        self.spawned: list[tuple[tuple[str, str], list[tuple[str, ...]]]] = []

    @property
    def model(self) -> PlainPool:
        return self.bench.model

    def pick(self, at: int, things: Sequence[T]) -> T | None:
        return things[at % len(things)] if things else None

    def name(self, kind: str) -> str:
        self.count += 1
        return f"{kind}{self.count}"

    def with_status(self, *statuses: str) -> list[Agent]:
        return [a for a in self.model.agents.values() if a.status in statuses]

    def unsettled(self) -> list[Agent]:
        return self.model.unsettled()

    def admitted_agents(self) -> list[Agent]:
        return [a for a in self.unsettled() if a.admitted]

    def running(self) -> list[Agent]:
        return self.with_status("running", "waiting", "stopping")

    def holder(self, agent: Agent) -> tuple[str, str]:
        assert agent.token
        return agent.id, agent.token.value

    def worker_names(self) -> list[str]:
        return list(self.model.workers)

    def safe(self, budget: int) -> int:
        """A reaper's budget that covers a dead worker: which of its agents go first is the server's free choice."""
        held = [len(self.model.held_by(name)) for name in self.model.workers]
        return budget if budget >= max(held, default=0) else LARGE

    # Steering: a pool in which nothing happens hides every bug

    def liven(self) -> None:
        """Someone runs, if that can be had at all."""
        if self.with_status("running"):
            return
        if self.model.halted:
            self.unhalt()
        if self.model.paused:
            self.pause(False)
        if self.model.limit < 2:
            self.set_limit("3")
        self.employ()
        self.claim_everywhere(2)
        if not self.with_status("running"):
            self.crowd()
            self.claim_everywhere(2)

    def employ(self) -> None:
        """Every type has a worker."""
        if not all(self.model.served(type) for type in TYPES):
            known = self.model.workers.get("w1")
            self.join("w1", known.types if known else TYPES)
        if not all(self.model.served(type) for type in TYPES):
            self.join("w2" if "w2" not in self.model.workers else "w4", TYPES)

    def claim_everywhere(self, free: int) -> None:
        for worker in self.worker_names():
            self.claim(worker, free)

    def crowd(self) -> None:
        """A bit of everything, more than can run."""
        bypass = sum(a.bypass for a in self.model.unsettled()) < self.model.facts.max_bypass and "bypass" not in dict(
            self.model.ghosts.values()
        )
        wires = [
            self.wire("a", ("s",), retries=1),
            self.wire("b", policy="ob" if bypass else "o", retries=1),
            self.wire("a", ("t",), policy="s"),
            self.wire("b", ("s", "t")),
            self.wire("a", policy="s", retries=2),
        ]
        if len(self.model.unsettled()) < 12:
            self.spawn(wires)

    def busy(self) -> None:
        """Some run, some are on their way, some wait in line, a parent has lent its permit."""
        self.liven()
        if len(self.model.unsettled()) < 6:
            self.crowd()
        if self.model.limit < 6 and not self.admitted_agents():
            self.set_limit(str(self.model.active() + 1))
        parent = self.pick(0, self.with_status("running"))
        if parent and parent.depth < self.model.facts.max_depth and not self.with_status("waiting") and self.count % 2:
            self.spawn([self.wire(parent.type)], self.holder(parent))
            self.lend(self.holder(parent))

    # Spawning

    def wire(
        self, type: str, scopes: Sequence[str] = (), *, policy: str = "o", retries: int = 0, key: str = "", input: int = 0
    ) -> tuple[str, ...]:
        request = SpawnRequest(
            type=type,
            input={"n": input},
            scopes=tuple(scopes),
            key=key or None,
            description="what for" if input else None,
            timeout=30 if input else None,
            stall_timeout=5 if input else None,
            retries=retries,
            on_interrupt="survive" if policy.startswith("s") else "stop",
            bypass_queue=policy.endswith("b"),
        )
        return request.wire(self.name("agent"))

    def spawn(self, wires: Sequence[tuple[str, ...]], parent: tuple[str, str] = ("", "")) -> Answer:
        model = self.model
        answer = self.bench.step(calls.spawn(PREFIX, wires, parent), lambda: model.spawn(parent, wires))
        self.spawned.append((parent, list(wires)))
        self.ids += [wire[0] for wire in wires if wire[0] in model.agents]
        self.bench.survivors |= {a.id for a in model.agents.values() if a.survive}
        return answer

    # Runs

    def claim(self, worker: str, free: int, nonce: str = "") -> None:
        types = self.model.workers[worker].types
        nonce = nonce or self.name("nonce")
        self.bench.step(calls.claim(PREFIX, worker, free, types, nonce), lambda: self.model.claim(worker, free, types, nonce))
        self.past += [self.holder(a) for a in self.model.held_by(worker) if self.holder(a) not in self.past]

    def start(self, agent_id: str, token: str, worker: str) -> None:
        self.bench.step(calls.start(PREFIX, agent_id, token, worker), lambda: self.model.start(agent_id, token, worker))
        if (agent_id, token) not in self.past:
            self.past.append((agent_id, token))

    def renew(self, worker: str, held: Sequence[tuple[str, str]], budget: int = 0) -> None:
        budget = self.safe(budget) if budget else 0
        self.bench.step(calls.renew(PREFIX, worker, held, budget), lambda: self.model.renew(worker, budget, held))

    def beat(self, worker: str, budget: int = 0) -> None:
        self.renew(worker, [self.holder(a) for a in self.model.held_by(worker)], budget)

    def finish(self, *ends: tuple[tuple[str, str], str]) -> None:
        told = {"error": ("agent_error", "it broke", ""), "handed_back": ("", "", ""), "aborted": ("", "", '"partial"')}
        flat = [(*holder, outcome, *told.get(outcome, ("", "", '"done"'))) for holder, outcome in ends]
        call = calls.finish(PREFIX, [Settlement(*end) for end in flat])
        self.bench.step(call, lambda: self.model.finish(flat))

    def lend(self, holder: tuple[str, str]) -> None:
        self.bench.step(calls.lend(PREFIX, *holder), lambda: self.model.lend(*holder))

    def take_back(self, holder: tuple[str, str]) -> None:
        self.bench.step(calls.take_back(PREFIX, *holder), lambda: self.model.take_back(*holder))

    def emit(self, holder: tuple[str, str], count: int, again: bool = False) -> None:
        said = [("progress", f'{{"n":{n}}}') for n in range(count)]
        call = calls.emit(PREFIX, *holder, said)
        for _ in range(1 + again):
            self.bench.step(call, lambda: self.model.emit(call.args[0], *holder, said))

    # Stops

    def abort(self, agent_id: str, nonce: str = "") -> None:
        call = calls.abort(PREFIX, agent_id, "enough", "someone")
        nonce = nonce or call.args[0]
        self.aborts.append((agent_id, nonce))
        call = replace(call, args=(nonce, *call.args[1:]))
        self.bench.step(call, lambda: self.model.abort(nonce, agent_id, "enough", "someone"))

    def interrupt(self, scope: str, forced: bool, interrupt_id: str = "") -> str:
        interrupt_id = interrupt_id or self.name("i")
        reason = f"why {interrupt_id}"
        call = calls.interrupt(PREFIX, interrupt_id, scope, force=forced, kill=forced, reason=reason, by="me")
        self.bench.step(call, lambda: self.model.interrupt(interrupt_id, scope, forced, forced, reason, "me"))
        return interrupt_id

    def sweep(self, interrupt_id: str, budget: int) -> bool:
        answer = self.bench.step(calls.sweep(PREFIX, interrupt_id, budget), lambda: self.model.sweep(interrupt_id, budget))
        return answer[2] == 1

    def halt(self, forced: bool, interrupt_id: str = "") -> None:
        interrupt_id = interrupt_id or self.name("h")
        call = calls.halt(PREFIX, interrupt_id, force=forced, reason="fire", by="me")
        self.bench.step(call, lambda: self.model.halt(interrupt_id, forced, "fire", "me"))

    def unhalt(self) -> None:
        self.bench.step(calls.unhalt(PREFIX, "over", "me"), lambda: self.model.unhalt("over", "me"))

    # Settings and time

    def set_limit(self, limit: str) -> None:
        call = calls.set_limit(PREFIX, 0, "me")
        call = replace(call, args=(call.args[0], limit, "me"))
        self.bench.step(call, lambda: self.model.set_limit(limit, "me"))

    def pause(self, paused: bool) -> None:
        self.bench.step(calls.pause(PREFIX, paused, "so", "me"), lambda: self.model.pause(paused, "so", "me"))

    def clock(self, forward: int) -> None:
        self.bench.set_clock(self.model.clock + forward)

    # Workers and repairs

    def join(self, worker: str, types: Sequence[str]) -> None:
        described = {type: f'{{"about":"{type}"}}' for type in types}
        self.bench.step(calls.join(PREFIX, worker, "{}", described), lambda: self.model.join(worker, list(described.items())))

    def leave(self, worker: str, gone: bool) -> None:
        self.bench.step(calls.leave(PREFIX, worker, gone=gone), lambda: self.model.leave(worker, gone))

    def lose(self, worker: str, budget: int) -> None:
        before = [a.id for a in self.model.held_by(worker)]

        def taken() -> Answer:
            after = cast("set[str]", self.bench.redis.smembers(f"{PREFIX}held:{worker}"))
            return self.model.lose(worker, budget, [agent_id for agent_id in before if agent_id not in after])

        self.bench.step(calls.lose(PREFIX, worker, budget), taken)

    def reap(self, budget: int) -> None:
        budget = self.safe(budget)
        self.bench.step(calls.reap(PREFIX, budget), lambda: self.model.reap(budget))

    def tend(self, budget: int) -> None:
        budget = self.safe(budget)
        self.bench.step(calls.tend(PREFIX, budget), lambda: self.model.tend(budget))

    def lead(self, scheduler: str, lease: int) -> None:
        leader = self.leader
        leads = self.bench.ask(calls.lead(PREFIX, scheduler, lease))
        assert leads == (leader in ("", scheduler) and lease > 0), f"{scheduler} leads beside {leader}"
        if leader in ("", scheduler):
            self.leader = scheduler if lease else ""
        kept = self.bench.redis.pttl(f"{PREFIX}leader")
        assert self.bench.redis.get(f"{PREFIX}leader") == (self.leader or None)
        assert not self.leader or cast("int", kept) > 0, "a lead without an end"

    def admit(self, budget: int) -> None:
        self.bench.step(calls.admit(PREFIX, budget), lambda: self.model.give_out(budget))

    # Retention

    def consume(self, ids: Sequence[str]) -> None:
        self.bench.step(calls.consume(PREFIX, ids), lambda: self.model.consume(ids))

    def retain(self, budget: int) -> None:
        self.bench.step(calls.retain(PREFIX, budget), lambda: self.model.retain(budget))

    def purge(self, older: int, scope: str, budget: int) -> None:
        after = 0
        while True:
            start = after
            call = calls.purge(PREFIX, str(older), scope, budget, str(start))
            answer = self.bench.step(call, lambda: self.model.purge(older, scope, budget, start))  # noqa: B023 called at once
            if answer[2] == "":
                return
            after = int(str(answer[2]))

    # Readers

    def look_at(self, client: str) -> None:
        ids = [*self.model.agents, *list(self.model.tombstones)[:3], "nobody"]
        self.bench.step(calls.get(PREFIX, ids, client), lambda: views.get(self.model, client, ids))

    def look_at_numbers(self) -> None:
        numbers = self.bench.ask(calls.stats(PREFIX))
        expected = views.stats(self.model)
        assert numbers == expected, f"stats {numbers}, expected {expected}"
        for scope in ("*", *SCOPES):
            count = self.bench.ask(calls.unsettled(PREFIX, scope))
            assert count == views.unsettled(self.model, scope), f"{count} unsettled in {scope}"

    def look_at_report(self, interrupt_id: str, client: str) -> None:
        got = self.bench.ask(calls.report(PREFIX, interrupt_id, client))
        want = views.report(self.model, interrupt_id, client)
        found: views.Account | None = None
        if got:
            names = ("scope", "cutoff", "queued_stopped", "at", "reason", "by", "completed_at", "swept")
            facts: dict[str, str] = dict(zip(names, got.facts, strict=False))
            if facts["swept"] == "0":
                del facts["queued_stopped"]
            found = views.Account(got.wall, got.now, got.complete, facts, got.agents, got.left)
        assert found == want, f"report {found}, expected {want}"
        self.bench.compare("report")

    def walk(self, most: int, looks: int, status: str = "", type: str = "", scope: str = "", tree: str = "") -> None:
        below, found, pages = "+inf", list[str](), 0
        want = views.matching(self.model, status, type, scope, tree)
        while below:
            call = calls.list_page(PREFIX, status=status, type=type, scope=scope, tree=tree, most=most, below=below, looks=looks)
            page = self.bench.ask(call)
            records = list(page.lists(1))
            assert len(records) <= most, "a page is longer than was asked for"
            found += [views.field_of(record, "id") for record in records]
            below, pages = page.text(0), pages + 1
            assert pages < 200, "a walk through the list does not end"
        assert found == want, f"list({status!r}, {type!r}, {scope!r}, {tree!r}) found {found}, expected {want}"
        self.bench.compare("list")

    # Accidents: what happens to keys outside the scripts

    def admitted_jobs(self) -> list[Job]:
        current = [(job, self.model.agents.get(job.agent_id)) for job in self.model.jobs]
        return [job for job, agent in current if agent and agent.admitted and agent.token is job.token]

    def lose_delivery(self, job: Job, how: str) -> None:
        name = job_id(job, TAG)
        if how in ("queue", "both"):
            self.bench.redis.zrem(f"arq:queue:{TAG}:{job.type}", name)
            job.queued = False
        if how in ("body", "both"):
            self.bench.redis.delete(f"arq:job:{name}")
            job.body = False
        if how == "picked":
            self.bench.redis.set(f"arq:in-progress:{name}", "1")
            self.bench.redis.set(f"arq:retry:{name}", "1")
            job.in_progress = job.retry = True
        if not (job.queued or job.body):
            self.model.jobs.remove(job)
        self.bench.compare(f"lost delivery {how}")

    def duplicate_delivery(self, agent_id: str, token: str, type: str) -> None:
        """arq's queue holds a delivery that is long over."""
        known = next((job for job in self.model.jobs if job.agent_id == agent_id and job.token.value == token), None)
        if known:
            return
        self.model.admissions += 1
        self.bench.redis.incr(f"{PREFIX}admissions")
        stray = self.bench.stray(agent_id, token, type, self.model.admissions)
        self.model.jobs.append(stray)
        self.bench.compare("duplicate delivery")

    def lose_wake_up(self, type: str) -> None:
        """A worker took the token and died."""
        self.bench.redis.delete(f"{PREFIX}wake:{type}")
        self.model.awake.discard(type)
        self.bench.compare("a lost wake-up")

    def expire_worker_record(self, worker: Worker) -> None:
        self.bench.redis.delete(f"{PREFIX}worker:{worker.name}")
        self.model.worker_record_expires(worker)
        self.bench.compare("a worker's record expired")

    def expire_agent(self, agent: Agent) -> None:
        self.bench.redis.delete(*(f"{PREFIX}{kind}:{agent.id}" for kind in ("agent", "input", "result", "events")))
        self.model.fade(agent.id)
        self.bench.compare("an agent's record expired")

    def exorcise(self, ghost: str) -> None:
        place, _ = self.model.ghosts.pop(ghost)
        self.bench.redis.zrem(f"{PREFIX}{place}", ghost)
        self.bench.compare("a ghost is gone")

    def spoiled(self, name: str) -> None:
        self.clock(1)
        redis, key = self.bench.redis, f"{PREFIX}{name}"
        there = bool(redis.exists(key))
        if there:
            redis.rename(key, "kept")
        redis.set(key, "spoiled")
        try:
            self.bench.ask(calls.admit(PREFIX, LARGE))
        except SubagentsError:
            pass
        else:
            raise AssertionError(f"{name} has a wrong type, and nothing noticed")
        finally:
            redis.delete(key)
            if there:
                redis.rename("kept", key)
        self.bench.compare(f"a call on a spoiled {name}")

    def ghost(self, place: str) -> str:
        """Damage: an entry that no record stands behind."""
        ghost = self.name("ghost")
        if place[1:2] == ":":
            self.model.seq += 1
            score = self.model.seq
            self.bench.redis.incr(f"{PREFIX}seq")
            self.bench.redis.zadd(f"{PREFIX}pending:{place}", {ghost: score})
            heads = "lanes" if self.model.served(place[2:]) else "unserved"
            self.bench.redis.zadd(f"{PREFIX}{heads}", {place: score}, lt=True)
        else:
            score = self.model.lease_from_now()
            self.bench.redis.zadd(f"{PREFIX}{place}", {ghost: score})
        self.model.ghosts[ghost] = (place, score)
        self.bench.compare("a ghost")
        return ghost
