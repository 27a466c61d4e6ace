"""The plain model, first layer: the pool's state, its time, who is hit, admission, and the ways out of a run.

Written from the sentences of the design, with one list of agents and no collections beside it: who holds a permit, who is next, who is
hit are questions asked of the agents. It is slow and says what is right; the scripts are fast and must say the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from plain_records import Agent, Event, Interrupt, Job, PoolFacts, Token, Worker


class PlainCore:
    """State and the transitions that others are made of."""

    def __init__(self, facts: PoolFacts, limit: int, raw: int) -> None:
        self.facts = facts
        self.limit, self.paused, self.halted = limit, False, False
        self.version: int = 1
        self.changed_by: str = "test"
        self.changed_at: int | None = None
        self.last_raw: int | None = None
        self.halt_reason, self.halted_by = "", ""
        self.clock, self.now, self.wall = raw, 0, 0
        self.seq: int = 0
        self.admissions: int = 0
        self.agents: dict[str, Agent] = {}
        self.faded: dict[str, tuple[Agent, set[str]]] = {}  # records gone by TTL, and the indexes that still name them
        self.tombstones: dict[str, Agent] = {}
        self.ghosts: dict[str, tuple[str, int]] = {}  # damage done by hand: id -> (collection, score)
        self.keys: dict[str, tuple[str, bool]] = {}  # spawn key -> (agent, settled)
        self.types: dict[str, str] = {}
        self.serving: dict[str, set[str]] = {}
        self.workers: dict[str, Worker] = {}
        self.claims: dict[str, tuple[str, list[str]]] = {}
        self.jobs: list[Job] = []
        self.awake: set[str] = set()
        self.cutoffs: dict[tuple[str, bool], int] = {}
        self.causes: dict[str, tuple[str, str]] = {}
        self.interrupts: dict[str, Interrupt] = {}
        self.scope_lists: dict[str, bool] = {}  # index:scope:<scope> -> it is going to expire
        self.tree_lists: dict[str, bool] = {}
        self.events: list[Event] = []
        self.heard: Counter[tuple[str, str]] = Counter()
        self.told: dict[str, set[str]] = {}
        self.ever_started: set[str] = set()

    # Time

    def tick(self) -> None:
        """Pool time follows Redis' clock, never backwards, never by more than a step (section 5)."""
        raw, last = self.clock, self.last_raw
        self.now += min(max(raw - (raw if last is None else last), 0), self.facts.max_step)
        self.wall = max(self.wall, raw)
        self.last_raw = raw

    def lease_from_now(self) -> int:
        return self.now + self.facts.lease

    # Questions

    def unsettled(self, scope: str = "*") -> list[Agent]:
        return sorted((a for a in self.agents.values() if not a.settled and scope in a.marks), key=lambda a: a.seq)

    def permits(self) -> list[Agent]:
        return [a for a in self.agents.values() if a.holds_permit]

    def active(self) -> int:
        return len(self.permits()) + sum(place == "active" for place, _ in self.ghosts.values())

    def cut(self, agent: Agent, scope: str) -> bool:
        """Stopped by definition: its seq is at or below a cutoff of that scope; survivors look at the forced one only."""
        if agent.seq <= self.cutoffs.get((scope, True), 0):
            return True
        return not agent.survive and agent.seq <= self.cutoffs.get((scope, False), 0)

    def hit(self, agent: Agent) -> bool:
        return any(self.cut(agent, scope) for scope in agent.marks)

    def cause(self, agent: Agent) -> tuple[str, str]:
        """Reason and author of the newest interrupt of the scope that hit it."""
        return next((self.causes[scope] for scope in agent.marks if self.cut(agent, scope)), ("", ""))

    def served(self, type: str) -> bool:
        return bool(self.serving.get(type))

    def job_of(self, agent_id: str, token: Token | None) -> Job | None:
        return next((job for job in self.jobs if job.agent_id == agent_id and job.token is token), None)

    def deliveries(self, type: str) -> list[Job]:
        """What lies in the arq queue of a type, in the order of admission."""
        return sorted((job for job in self.jobs if job.type == type and job.queued), key=lambda job: job.number)

    def open_interrupts(self, scope: str | None = None) -> list[Interrupt]:
        return [i for i in self.interrupts.values() if not i.swept and scope in (None, i.scope)]

    def event(self, kind: str, agent_id: str, seq: int, **facts: str | int | Token) -> None:
        told = {name: fact if isinstance(fact, Token) else str(fact) for name, fact in facts.items()}
        self.events.append(Event(kind, agent_id, seq, told))

    def say(self, channel: str, message: str) -> None:
        self.heard[channel, message] += 1

    def tell(self, watchers: Iterable[str], what: str) -> None:
        for watcher in watchers:
            self.told.setdefault(watcher, set()).add(what)

    # Admission

    def head(self) -> tuple[int, str] | None:
        """The lowest seq that a permit can go to: queued and served, or a parent that wants its lent permit back (invariant 3)."""
        line = [(a.seq, a.id) for a in self.agents.values() if a.returning or (a.in_line and self.served(a.type))]
        line += [(seq, ghost) for ghost, (place, seq) in self.ghosts.items() if place[1:2] == ":" and self.served(place[2:])]
        return min(line, default=None)

    def admit(self, budget: int) -> tuple[int, bool]:
        """Permits go to the head of the line while fewer than the limit are held; pause and halt hold everything (I12)."""
        granted = 0
        for _ in range(budget if not (self.paused or self.halted) else 0):
            if self.active() >= self.limit:
                break
            head = self.head()
            if head is None:
                break
            granted += self.grant(head[1])
        more = not (self.paused or self.halted) and self.active() < self.limit and self.head() is not None
        return granted, more

    def grant(self, agent_id: str) -> bool:
        if agent_id in self.ghosts:
            place, seq = self.ghosts.pop(agent_id)
            self.event("corrupt", agent_id, seq, status="missing", where=place)
            return False
        agent = self.agents[agent_id]
        if agent.returning:
            return self.resume(agent)
        if self.hit(agent):
            self.stop_by_interrupt(agent)
            return False
        self.place(agent)
        return True

    def resume(self, agent: Agent) -> bool:
        agent.returning = False
        if self.hit(agent):
            return False
        agent.status, agent.lent = "running", False
        self.event("resumed", agent.id, agent.seq, active=self.active(), max_concurrent=self.limit)
        self.say("control", f"resumed {agent.id}")
        return True

    def place(self, agent: Agent) -> None:
        """A token, a lease, and a job on its way to a worker."""
        agent.token, agent.admitted_at, agent.lease_end = Token(), self.wall, self.lease_from_now()
        job = self.dispatch(agent)
        self.event(
            "admitted",
            agent.id,
            agent.seq,
            number=job.number,
            set="bypass" if agent.bypass else "active",
            active=self.active(),
            max_concurrent=self.limit,
        )

    def dispatch(self, agent: Agent) -> Job:
        assert agent.token
        self.admissions += 1
        job = Job(agent.id, agent.token, agent.type, self.admissions, self.wall)
        self.jobs.append(job)
        self.awake.add(agent.type)
        return job

    def undispatch(self, agent: Agent) -> None:
        job = self.job_of(agent.id, agent.token)
        if job:
            self.jobs.remove(job)

    def admit_bypass(self, budget: int) -> None:
        """Bypass runs skip the queue, but pause, halt and limit 0 hold those not dispatched yet (P4, I12)."""
        if self.paused or self.halted or self.limit == 0:
            return
        for agent in [a for a in self.unsettled() if a.held_back][:budget]:
            if self.hit(agent):
                self.stop_by_interrupt(agent)
            else:
                self.place(agent)

    # Ways out

    def settle(self, agent: Agent, status: str, result: str | None = None, **facts: str) -> None:
        """One terminal status per run: permit and delivery are given back, lists and waiters are told."""
        if agent.status == "queued":
            self.count_once(agent)
        if agent.admitted:
            self.undispatch(agent)
        agent.status, agent.ended_at, agent.lent, agent.returning = status, self.wall, False, False
        agent.facts.update(facts)
        agent.result = result
        agent.ttl, agent.drop_at = self.facts.keep_settled, self.wall + self.facts.keep_settled
        self.tombstones[agent.id] = agent
        if agent.key:
            self.keys[agent.key] = (agent.id, True)
        for scope in agent.marks:
            if not self.unsettled(scope):
                self.scope_emptied(scope)
        if agent.ancestors:
            self.tree_lists[agent.root] = True
        self.event(status, agent.id, agent.seq, run="1")
        if agent.said:
            agent.said.append((status, "{}"))
        for interrupt_id in agent.interrupts:
            interrupt = self.interrupts[interrupt_id]
            interrupt.accounts[agent.id] = (agent.worker or "", self.wall)
            del interrupt.left[agent.id]
            self.close(interrupt)
        self.tell(agent.watchers, agent.id)
        agent.watchers = []

    def scope_emptied(self, scope: str) -> None:
        self.say("idle", scope)
        if scope in self.scope_lists:
            self.scope_lists[scope] = True
        self.forget_cutoff(scope)

    def forget_cutoff(self, scope: str) -> None:
        """A cutoff says nothing once no unsettled agent carries its scope."""
        if scope != "*" and not self.unsettled(scope):
            self.cutoffs.pop((scope, True), None)
            self.cutoffs.pop((scope, False), None)
            self.causes.pop(scope, None)

    def close(self, interrupt: Interrupt) -> None:
        """Complete: the sweep is through and everyone it found running is out."""
        if interrupt.swept and not interrupt.left:
            interrupt.completed_at = self.wall
            self.forget_cutoff(interrupt.scope)
            self.tell(interrupt.watchers, interrupt.id)

    def stop_by_interrupt(self, agent: Agent) -> None:
        reason, by = self.cause(agent)
        if agent.stop_requested_at is None:
            agent.stop_requested_at = self.wall
        self.settle(agent, "stopped", stop_reason=reason, stopped_by=by)

    def count_once(self, agent: Agent) -> None:
        """A queued agent that several open interrupts hit is counted by the oldest (I7)."""
        counting = sorted((i for i in self.open_interrupts() if agent.id in i.queued), key=lambda i: (i.at, i.id))
        for later in counting[1:]:
            later.queued.discard(agent.id)

    def join_interrupts(self, agent: Agent) -> None:
        """A running agent is accounted for by each interrupt that hit it and has not passed it yet."""
        for scope in agent.marks:
            for interrupt in self.open_interrupts(scope):
                if interrupt.subject(agent) and interrupt.id not in agent.interrupts:
                    agent.interrupts.append(interrupt.id)
                    interrupt.accounts[agent.id] = (agent.worker or "", None)
                    interrupt.left[agent.id] = agent.seq

    def mark_stopping(self, agent: Agent, reason: str, by: str) -> None:
        """Told to stop; its permit is held until it is out (P6)."""
        if agent.status != "stopping":
            agent.returning = False
            agent.status, agent.stop_requested_at = "stopping", self.wall
            agent.facts |= {"stop_reason": reason, "stopped_by": by}
            self.event("stopping", agent.id, agent.seq, reason=reason, by=by)
        self.join_interrupts(agent)
        agent.noted = tuple(agent.interrupts)

    def requeue(self, agent: Agent) -> None:
        """Back to its own place, in front of everyone who was spawned later (P13)."""
        if agent.admitted:
            self.undispatch(agent)
        agent.status, agent.token, agent.worker, agent.lent, agent.returning = "queued", None, None, False, False
        agent.admitted_at = agent.started_at = None
