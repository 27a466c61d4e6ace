"""The plain model, second layer: spawning, and the life of a run as its worker drives it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from plain_core import PlainCore
from plain_records import Agent, Worker

Answer = list[object]
Wire = tuple[str, ...]


class PlainRuns(PlainCore):
    """Every method takes what its script takes, and returns the answer that is expected of it."""

    # Spawning

    def spawn(self, parent: tuple[str, str], wires: Sequence[Wire]) -> Answer:
        self.tick()
        if self.halted:
            return ["halted"]
        if len(self.unsettled()) + len(wires) > self.facts.max_queued:
            return ["queue_full", str(self.facts.max_queued)]
        refused = self._parent_refusal(parent) or self._batch_refusal(wires)
        if refused:
            return refused
        answers: Answer = [self._spawn_one(parent[0], wire) for wire in wires]
        self.admit(len(wires) + 32)
        self.admit_bypass(len(wires))
        return ["spawned", answers]

    def _parent_refusal(self, parent: tuple[str, str]) -> Answer | None:
        """N2: no child of anyone stopping, settled or hit, and no child for a worker that lost the agent."""
        parent_id, token = parent
        if not parent_id:
            return None
        agent = self.agents.get(parent_id)
        mine = agent and agent.token and agent.token.value == token and agent.status in ("running", "waiting")
        if not agent or not mine or self.hit(agent):
            return ["parent_stopped", parent_id]
        for ancestor_id in agent.ancestors:
            ancestor = self.agents.get(ancestor_id)
            if not ancestor or ancestor.settled or ancestor.status == "stopping" or self.hit(ancestor):
                return ["parent_stopped", ancestor_id]
        if agent.depth + 1 > self.facts.max_depth:
            return ["too_deep", str(self.facts.max_depth), ",".join((*agent.ancestors, parent_id))]
        return None

    def _batch_refusal(self, wires: Sequence[Wire]) -> Answer | None:
        places = self.facts.max_bypass - sum(a.bypass for a in self.unsettled())
        places -= sum(place == "bypass" for place, _ in self.ghosts.values())
        within: dict[str, str] = {}  # the keys of this very batch
        for wire in wires:
            agent_id, type, key, fingerprint = wire[0], wire[1], wire[4], wire[5]
            holder = self._holder(agent_id, key)
            if holder:
                known = self.agents.get(holder)
                if known and known.fingerprint != fingerprint:
                    return ["key_conflict", key, holder]
                continue
            if key in within:
                if within[key] != fingerprint:
                    return ["key_conflict", key, next(other[0] for other in wires if other[4] == key)]
                continue
            if key:
                within[key] = fingerprint
            if self.types and type not in self.types:
                return ["unknown_type", type, set(self.types)]
            places -= wire[10].endswith("b")
            if wire[10].endswith("b") and places < 0:
                return ["bypass_refused", str(self.facts.max_bypass)]
        return None

    def _holder(self, agent_id: str, key: str) -> str | None:
        if agent_id in self.agents or agent_id in self.tombstones:
            return agent_id
        return self.keys[key][0] if key in self.keys else None

    def _spawn_one(self, parent_id: str, wire: Wire) -> Answer:
        agent_id, type, body, scopes, key, fingerprint, description, timeout, stall, retries, policy = wire
        holder = self._holder(agent_id, key)
        if holder:
            return ["duplicate", holder]
        parent = self.agents[parent_id] if parent_id else None
        self.seq += 1
        own = tuple(scopes.split(",")) if scopes else ()
        agent = self.agents[agent_id] = Agent(
            id=agent_id,
            seq=self.seq,
            type=type,
            scopes=tuple(dict.fromkeys((*parent.scopes, *own))) if parent else own,
            ancestors=(*parent.ancestors, parent_id) if parent else (),
            survive=policy.startswith("s") or (parent.survive if parent else False),
            bypass=policy.endswith("b"),
            retries=int(retries),
            key=key,
            fingerprint=fingerprint,
            input=body,
            depth=parent.depth + 1 if parent else 0,
            enqueued_at=self.wall,
            description=description,
            timeout=timeout,
            stall_timeout=stall,
        )
        if key:
            self.keys[key] = (agent_id, False)
        for scope in agent.scopes:
            self.scope_lists[scope] = False
        if parent:
            self.agents[agent.root].parented = True
            self.tree_lists[agent.root] = False
        self.event("created", agent_id, agent.seq, type=type, bypass=int(agent.bypass), parent=parent_id)
        return ["new", agent_id]

    # Starting

    def spec(self, agent: Agent) -> Answer:
        flags = [str(int(agent.survive)), str(int(agent.bypass))]
        where = [",".join(agent.scopes), ",".join(agent.ancestors)]
        about = [agent.ancestors[-1], agent.root] if agent.ancestors else ["", ""]
        times = [agent.timeout, agent.stall_timeout, str(agent.attempt), "1", str(agent.depth)]
        assert agent.token
        identity = [agent.id, agent.token.value, agent.type, str(agent.seq), agent.input]
        return [*identity, *where, *flags, *times, *about, agent.description]

    def begin(self, agent_id: str, token: str, worker: str) -> tuple[str, Agent | None]:
        """The one moment in which an admitted agent becomes running code; a stopped agent never does (invariant 5)."""
        agent = self.agents.get(agent_id)
        if agent is None:
            return "unknown", None
        if agent.token is None or agent.token.value != token or agent.settled:
            return "stale", agent
        if agent.on_worker:
            again = agent.worker == worker and agent.status == "running"  # the answer was lost, so it does not run yet
            if again:
                self._hold(agent)
            return ("started" if again else "stale"), agent
        if self.hit(agent):
            self.stop_by_interrupt(agent)
            return "stopped", agent
        if self.halted:
            self.requeue(agent)
            self.event("redispatched", agent_id, agent.seq, reason="halted")
            return "halted", agent
        self._run_on(agent, worker)
        self._hold(agent)
        self.event("started", agent_id, agent.seq, token=agent.token, worker=worker)
        return "started", agent

    def _hold(self, agent: Agent) -> None:
        """A whole lease from now on; its worker's own lease never ends before those of what it runs."""
        agent.lease_end = self.lease_from_now()
        if agent.worker in self.workers:
            self.workers[agent.worker].lease_end = self.lease_from_now()

    def _run_on(self, agent: Agent, worker: str | None) -> None:
        self.undispatch(agent)
        agent.status, agent.worker, agent.started_at = "running", worker, self.wall
        agent.attempt += 1
        self.ever_started.add(agent.id)

    def start(self, agent_id: str, token: str, worker: str) -> Answer:
        self.tick()
        code, agent = self.begin(agent_id, token, worker)
        if code == "started" and agent:
            return ["started", str(self.now), str(self.facts.lease), self.spec(agent)]
        self.admit(32)
        return [code, agent.status] if code == "stale" and agent else [code]

    def claim(self, worker: str, free: int, types: Sequence[str], nonce: str) -> Answer:
        """A worker takes its share of the backlog, lowest admission number first, and starts it in the same step."""
        self.tick()
        answer: Answer = ["claimed", str(self.now), str(self.facts.lease)]
        if worker in self.claims and self.claims[worker][0] == nonce:
            claimed = [self.agents[i] for i in self.claims[worker][1] if i in self.agents]
            again = [a for a in claimed if a.worker == worker and a.status == "running"]
            for once_more in again:
                self._hold(once_more)
            return answer + [self.spec(once_more) for once_more in again]
        offered = [type for type in types if self.deliveries(type)]
        backlog = sum(len(self.deliveries(type)) for type in offered)
        helpers = max((1, *(len(self.serving.get(type, ())) for type in offered)))
        share = min(free, max(1, math.ceil(backlog / helpers)))
        taken: list[str] = []
        looked = 0
        while len(taken) < share and looked < share + 32:
            waiting = [job for type in types for job in self.deliveries(type)]
            if not waiting:
                break
            looked += 1
            job = min(waiting, key=lambda job: job.number)
            code, agent = self.begin(job.agent_id, job.token.value, worker)
            if code == "started" and agent:
                taken.append(agent.id)
                answer.append(self.spec(agent))
            if job in self.jobs:
                self.jobs.remove(job)
        self.awake |= {type for type in types if self.deliveries(type)}
        if taken:
            self.claims[worker] = (nonce, taken)
        if looked > len(taken):
            self.admit(looked)
        return answer

    # Running

    def renewal(self, agent_id: str, token: str, worker: str) -> str:
        agent = self.agents.get(agent_id)
        if agent is None or agent.token is None or agent.token.value != token or agent.settled:
            return "stale"
        if agent.status == "queued":
            self._adopt(agent, worker)
        if agent.worker != worker:
            return "stale"
        agent.lease_end = self.lease_from_now()
        if agent.status != "stopping" and self.hit(agent):
            self.mark_stopping(agent, *self.cause(agent))
        return "stop" if agent.status == "stopping" else agent.status

    def seen(self, worker: str, running: int) -> bool:
        """Renews the worker's own lease; False if it must join again."""
        known = self.workers.get(worker)
        if known is None or not known.recorded:
            return False
        known.lease_end, known.seen_at, known.running = self.lease_from_now(), self.wall, running
        return True

    def _adopt(self, agent: Agent, worker: str | None) -> None:
        """The server lost the start that it had acknowledged: the agent runs, or ran."""
        self._run_on(agent, worker)
        for interrupt in self.interrupts.values():
            interrupt.queued.discard(agent.id)
        self.event("adopted", agent.id, agent.seq, worker=worker or "")

    def finish(self, ends: Sequence[tuple[str, str, str, str, str, str]]) -> Answer:
        self.tick()
        answers: Answer = [self._finish_one(*end) for end in ends]
        self.admit(len(ends) + 32)
        self.admit_bypass(len(ends))
        return ["finished", answers]

    def _finish_one(self, agent_id: str, token: str, outcome: str, kind: str, error: str, result: str) -> Answer:
        agent = self.agents.get(agent_id)
        if agent is None:
            return ["unknown", ""]
        if agent.token is None or agent.token.value != token:
            return ["stale", agent.status]
        if agent.settled:
            return ["settled" if agent.facts.get("outcome") == outcome else "stale", agent.status]
        if agent.status == "queued":
            self._adopt(agent, None)
        facts = {"outcome": outcome}
        if kind:
            facts |= {"error_kind": kind, "error": error}
        value = result or None
        if outcome == "stopped" or agent.status == "stopping" or self.hit(agent):
            self.mark_stopping(agent, *self.cause(agent))
            self.settle(agent, "stopped", value, **facts)
        elif outcome == "handed_back" and agent.may_run_again:
            self.requeue(agent)
            self.event("redispatched", agent_id, agent.seq, reason="handed_back")
            return ["queued", "queued"]
        elif outcome == "handed_back":
            self.settle(agent, "error", value, outcome=outcome, error_kind="shutdown", error=error)
        else:
            if agent.status == "waiting" and outcome != "error":  # the server lost the return of its permit
                self.event("adopted", agent_id, agent.seq, worker=agent.worker or "")
            self.settle(agent, outcome, value, **facts)
        return ["settled", agent.status]

    def emit(self, nonce: str, agent_id: str, token: str, said: Sequence[tuple[str, str]]) -> Answer:
        agent = self.agents.get(agent_id)
        if agent is None:
            return ["unknown"]
        if agent.token is None or agent.token.value != token or not agent.on_worker:
            return ["stale", agent.status]
        if agent.facts.get("emitted") != nonce:
            agent.said += said
            agent.facts |= {"progress": said[-1][1], "emitted": nonce}
        return ["emitted"]

    # Lending

    def _lender(self, agent_id: str, token: str) -> Agent | None:
        agent = self.agents.get(agent_id)
        mine = agent and agent.token and agent.token.value == token and agent.on_worker
        return agent if mine else None

    def _not_theirs(self, agent_id: str) -> Answer:
        return ["stale", self.agents[agent_id].status if agent_id in self.agents else ""]

    def lend(self, agent_id: str, token: str) -> Answer:
        agent = self._lender(agent_id, token)
        if agent is None:
            return self._not_theirs(agent_id)
        self.tick()
        if agent.status == "stopping" or self.hit(agent):
            return ["stop"]
        if agent.bypass:
            return ["running"]
        if agent.status == "running":
            agent.status, agent.lent = "waiting", True
            self.event("waiting", agent_id, agent.seq)
            self.admit(32)
        return ["waiting"]

    def take_back(self, agent_id: str, token: str) -> Answer:
        agent = self._lender(agent_id, token)
        if agent is None:
            return self._not_theirs(agent_id)
        self.tick()
        if agent.status == "stopping" or self.hit(agent):
            return ["stop"]
        if agent.status == "running":
            return ["running"]
        agent.returning = True
        self.admit(32)
        return [agent.status]

    # Workers come

    def join(self, worker: str, types: Sequence[tuple[str, str]]) -> Answer:
        self.tick()
        for type, about in types:
            self.types[type] = about
            self.serving.setdefault(type, set()).add(worker)
        names = tuple(type for type, _ in types)
        self.workers[worker] = Worker(worker, names, self.lease_from_now(), self.wall, self.wall)
        self.admit(100)
        return ["joined", str(self.now), str(self.facts.lease), str(self.version)]
