"""The plain model, third layer: stops and their sweeps, settings, workers that go, repairs, retention."""

from __future__ import annotations

from collections.abc import Sequence

from plain_records import Agent, Interrupt, Token, Worker
from plain_runs import Answer, PlainRuns


class PlainPool(PlainRuns):
    """The whole pool."""

    # Stops

    def abort(self, nonce: str, agent_id: str, reason: str, by: str) -> Answer:
        agent = self.agents.get(agent_id)
        if agent is None:
            return ["expired" if agent_id in self.tombstones else "unknown"]
        if agent.settled:
            return ["stopped"] if agent.facts.get("abort") == nonce else ["already_terminal", agent.status]
        self.tick()
        agent.facts["abort"] = nonce
        descendants = f"@{agent_id}"
        if self.unsettled(descendants) and nonce not in self.interrupts:
            self._raise(nonce, descendants, True, False, reason, by)
        if agent.status == "queued":
            if self.hit(agent):
                self.stop_by_interrupt(agent)
            else:
                agent.stop_requested_at = self.wall
                self.settle(agent, "stopped", stop_reason=reason, stopped_by=by)
            self.admit(32)
            return ["stopped"]
        self.mark_stopping(agent, reason, by)
        self.say("control", f"abort {agent_id}")
        return ["stopping"]

    def interrupt(self, interrupt_id: str, scope: str, forced: bool, kill: bool, reason: str, by: str) -> Answer:
        if interrupt_id in self.interrupts:
            return ["interrupted", str(self.interrupts[interrupt_id].cutoff)]
        self.tick()
        return ["interrupted", str(self._raise(interrupt_id, scope, forced, kill, reason, by))]

    def halt(self, interrupt_id: str, forced: bool, reason: str, by: str) -> Answer:
        if interrupt_id in self.interrupts:
            return ["interrupted", str(self.interrupts[interrupt_id].cutoff)]
        self.tick()
        self.halted, self.halt_reason, self.halted_by = True, reason, by
        self._changed(by)
        self.event("halted", "", 0, reason=reason, by=by)
        return ["interrupted", str(self._raise(interrupt_id, "*", forced, False, reason, by))]

    def _raise(self, interrupt_id: str, scope: str, forced: bool, kill: bool, reason: str, by: str) -> int:
        """Durable first: everyone of the scope spawned so far is at or below the cutoff."""
        cutoff = max(self.seq, self.cutoffs.get((scope, forced), 0))
        self.cutoffs[scope, forced] = cutoff
        self.causes[scope] = (reason, by)
        made = Interrupt(interrupt_id, scope, cutoff, forced, kill, reason, by, self.wall, set[str]())
        made.queued = {a.id for a in self.unsettled(scope) if made.subject(a) and not a.on_worker}
        self.interrupts[interrupt_id] = made
        if scope == "*":
            self._drop_lanes(forced)
        self.event("interrupt", interrupt_id, cutoff, scope=scope, forced=int(forced), reason=reason, by=by)
        self.say("control", f"interrupt {cutoff} {int(forced)} {int(kill)} {interrupt_id} {scope}")
        return cutoff

    def _drop_lanes(self, forced: bool) -> None:
        for agent in self.agents.values():
            if agent.in_line and (forced or not agent.survive):
                agent.dropped = True
        for ghost, (place, _) in list(self.ghosts.items()):
            if place.startswith("o:") or (forced and place.startswith("s:")):
                del self.ghosts[ghost]

    def sweep(self, interrupt_id: str, budget: int) -> Answer:
        self.tick()
        looked, more = 0, False
        if interrupt_id:
            interrupt = self.interrupts.get(interrupt_id)
            if interrupt:
                looked, more = self._sweep_one(interrupt, budget)
        else:
            more = self.sweep_open(budget)
        self.admit(32)
        return ["swept", looked, int(more)]

    def _sweep_one(self, interrupt: Interrupt, budget: int) -> tuple[int, bool]:
        """From the lowest seq up to the cutoff, each agent once: those not started settle, those that run are told."""
        if interrupt.swept:
            return 0, False
        scope = interrupt.scope
        found = [a for a in self.unsettled(scope) if interrupt.cursor < a.seq <= interrupt.cutoff][:budget]
        for agent in found:
            if not interrupt.subject(agent):
                continue
            if agent.on_worker:
                self.mark_stopping(agent, interrupt.reason, interrupt.by)
            else:
                self.stop_by_interrupt(agent)
        if found:
            interrupt.cursor = found[-1].seq
        if len(found) < budget:
            interrupt.swept = True
            self.close(interrupt)
        return len(found), not interrupt.swept

    def sweep_open(self, budget: int) -> bool:
        """The oldest open interrupts first; True while any is open."""
        for interrupt in sorted(self.open_interrupts(), key=lambda i: (i.at, i.id))[:4]:
            looked, more = self._sweep_one(interrupt, budget)
            if more:
                return True
            budget = max(1, budget - looked)
        return bool(self.open_interrupts())

    # Settings

    def _changed(self, by: str) -> None:
        self.version += 1
        self.changed_at, self.changed_by = self.wall, by

    def unhalt(self, reason: str, by: str) -> Answer:
        if not self.halted:
            return ["unchanged"]
        self.tick()
        self.halted, self.halt_reason, self.halted_by = False, "", ""
        self._changed(by)
        self.event("unhalted", "", 0, reason=reason, by=by)
        return ["changed", int(self._admit_all())]

    def pause(self, paused: bool, reason: str, by: str) -> Answer:
        if paused == self.paused:
            return ["unchanged"]
        self.tick()
        self.paused = paused
        self._changed(by)
        self.event("paused" if paused else "unpaused", "", 0, reason=reason, by=by)
        return ["changed", int(self._admit_all())]

    def set_limit(self, limit: str, by: str) -> Answer:
        if not limit.isdigit() or int(limit) > 1_000_000:
            return ["out_of_bounds"]
        self.tick()
        before, self.limit = self.limit, int(limit)
        self._changed(by)
        self.event("limit", "", 0, active=self.active(), max_concurrent=self.limit, by=by)
        return ["limit", str(before), int(self._admit_all())]

    def _admit_all(self) -> bool:
        _, more = self.admit(100)
        self.admit_bypass(100)
        return more

    def give_out(self, budget: int) -> Answer:
        """The admit script."""
        self.tick()
        granted, more = self.admit(budget)
        self.admit_bypass(budget)
        return ["admitted", granted, int(more)]

    # Workers go, leases run out

    def renew(self, worker: str, budget: int, held: Sequence[tuple[str, str]]) -> Answer:
        self.tick()
        codes = [self.renewal(agent_id, token, worker) for agent_id, token in held]
        known = self.seen(worker, len(held))
        answer: Answer = ["renewed" if known else "unknown_worker", str(self.now), str(self.facts.lease), str(self.version)]
        if budget:
            self.keep_house(budget)
        return answer + codes

    def keep_house(self, budget: int) -> bool:
        """What a pool needs to keep moving whoever is away; True if a budget was used up."""
        reaped = self.reap_leases(budget)
        unswept = self.sweep_open(budget)
        _, admissible = self.admit(budget)
        self.admit_bypass(budget)
        self.awake |= {type for type in self.types if self.deliveries(type)}
        return reaped >= budget or unswept or admissible

    def tend(self, budget: int) -> Answer:
        """One tick of a scheduler."""
        self.tick()
        return ["tended", int(self.keep_house(budget))]

    def reap(self, budget: int) -> Answer:
        self.tick()
        done = self.reap_leases(budget)
        _, more = self.admit(budget)
        self.admit_bypass(budget)
        return ["reaped", done, int(more)]

    def reap_leases(self, budget: int) -> int:
        done = 0
        for place in ("active", "waiting", "bypass"):
            expired = self._expired(place)[:budget]
            done += len(expired)
            for _, agent_id in expired:
                self._reap_one(agent_id, place)
        dead = sorted((w for w in self.workers.values() if w.lease_end < self.now), key=lambda w: (w.lease_end, w.name))
        for worker in dead[:1]:
            done += 1
            self.lose_worker(worker.name, [a.id for a in self.held_by(worker.name)], budget)
        return done

    def _expired(self, place: str) -> list[tuple[int, str]]:
        def stands(agent: Agent) -> bool:
            if place == "bypass":
                return agent.bypass and not agent.settled and not agent.held_back
            return agent.holds_permit if place == "active" else agent.lends_permit

        leases = [(a.lease_end, a.id) for a in self.agents.values() if stands(a)]
        leases += [(score, ghost) for ghost, (where, score) in self.ghosts.items() if where == place]
        return sorted(lease for lease in leases if lease[0] < self.now)

    def _reap_one(self, agent_id: str, place: str) -> None:
        if agent_id in self.ghosts:
            del self.ghosts[agent_id]
            self.event("corrupt", agent_id, 0, status="missing", where=place)
            return
        agent = self.agents[agent_id]
        if agent.on_worker:
            self.lose_run(agent)
        else:
            self._redeliver(agent)

    def lose_run(self, agent: Agent) -> None:
        """The run is over without a word from its worker."""
        if agent.status == "stopping" or self.hit(agent):
            self.mark_stopping(agent, *self.cause(agent))
            self.settle(agent, "stopped", outcome="lost")
        elif agent.may_run_again:
            self.event("lost", agent.id, agent.seq, worker=agent.worker or "")
            self.requeue(agent)
        else:
            why = f"worker {agent.worker} was lost while it ran this agent"
            self.settle(agent, "error", error_kind="worker_lost", outcome="lost", error=why)

    def _redeliver(self, agent: Agent) -> None:
        """Admitted, and nobody started it in a lease's time: still on its way is fine, a lost delivery is made again."""
        job = self.job_of(agent.id, agent.token)
        if self.hit(agent):
            self.stop_by_interrupt(agent)
        elif not agent.bypass and not self.served(agent.type):
            self.requeue(agent)
            self.event("redispatched", agent.id, agent.seq, reason="no_worker")
        elif job and job.queued and job.body and not job.in_progress:
            agent.lease_end = self.lease_from_now()
            self.awake.add(agent.type)
        else:
            agent.dispatches += 1
            if agent.dispatches > self.facts.max_dispatches:
                why = f"dispatched {agent.dispatches} times, and no worker started it"
                self.settle(agent, "error", error_kind="undeliverable", error=why)
                return
            self.undispatch(agent)
            agent.token, agent.lease_end = Token(), self.lease_from_now()
            self.dispatch(agent)
            self.event("redispatched", agent.id, agent.seq, reason="delivery_lost")

    def held_by(self, worker: str) -> list[Agent]:
        return [a for a in self.agents.values() if a.on_worker and a.worker == worker]

    def lose(self, worker: str, budget: int, taken: Sequence[str]) -> Answer:
        """`taken` are the agents that the server chose, if the budget does not cover all of them."""
        self.tick()
        more = self.lose_worker(worker, taken, budget)
        self.admit(budget + 32)
        self.admit_bypass(budget)
        return ["lost", int(more)]

    def lose_worker(self, worker: str, taken: Sequence[str], budget: int) -> bool:
        for agent_id in taken:
            self.lose_run(self.agents[agent_id])
        if len(taken) == budget:
            return True
        self._stop_serving(worker)
        self._forget_worker(worker)
        return False

    def leave(self, worker: str, gone: bool) -> Answer:
        self.tick()
        self._stop_serving(worker)
        if gone:
            self._forget_worker(worker)
        self.admit(100)
        self.admit_bypass(100)
        return ["left"]

    def _forget_worker(self, worker: str) -> None:
        self.workers.pop(worker, None)
        self.claims.pop(worker, None)

    def _stop_serving(self, worker: str) -> None:
        """A type that nobody serves any more holds no permit: its admitted agents return to their places (P11)."""
        for type in list(self.serving):
            self.serving[type].discard(worker)
            if self.serving[type]:
                continue
            del self.serving[type]
            for job in self.deliveries(type):
                agent = self.agents.get(job.agent_id)
                if agent and agent.admitted and agent.token is job.token and not agent.bypass:
                    self.requeue(agent)
                    self.event("redispatched", agent.id, agent.seq, reason="no_worker")

    # Retention

    def consume(self, ids: Sequence[str]) -> Answer:
        self.tick()
        keep = self.facts.keep_consumed
        for agent_id in ids:
            agent = self.agents.get(agent_id)
            if agent and agent.settled:
                agent.drop_at = min(agent.drop_at, self.wall + keep)
                agent.ttl = min(agent.ttl, keep)
        return ["consumed"]

    def fade(self, agent_id: str) -> None:
        """The server drops the keys of a settled agent by their TTL; the lists do not know yet."""
        agent = self.agents.pop(agent_id)
        self.faded[agent_id] = (agent, set(self.lists_of(agent)))

    def lists_of(self, agent: Agent) -> list[str]:
        """The lists that name it."""
        lists = ["all", f"type:{agent.type}", *(f"scope:{scope}" for scope in agent.scopes)]
        if agent.settled:
            lists.append(f"status:{agent.status}")
        if agent.ancestors or agent.parented:
            lists.append(f"tree:{agent.root}")
        return lists

    def retain(self, budget: int) -> Answer:
        self.tick()
        kept = [*self.agents.values(), *(agent for agent, _ in self.faded.values())]
        due = sorted((a.drop_at, a.id) for a in kept if a.settled and a.drop_at <= self.wall)[:budget]
        for _, agent_id in due:
            self._remove(agent_id)
        return ["retained", len(due), int(len(due) == budget)]

    def _remove(self, agent_id: str) -> None:
        self.agents.pop(agent_id, None)
        self.faded.pop(agent_id, None)

    def purge(self, older: int, scope: str, budget: int, after: int) -> Answer:
        self.tick()
        index = "all" if scope == "*" else f"scope:{scope}"
        listed = [(seq, agent_id) for seq, agent_id in self.listed(index) if seq > after][:budget]
        removed = 0
        for _, agent_id in listed:
            agent = self.agents.get(agent_id)
            if agent is None:
                self.unlist(index, agent_id)
            elif agent.ended_at is not None and agent.settled and self.wall - agent.ended_at >= older:
                self._remove(agent_id)
                removed += 1
        return ["purged", removed, str(listed[-1][0]) if len(listed) == budget else ""]

    def listed(self, index: str) -> list[tuple[int, str]]:
        """A list as it stands, with entries of records that are gone."""
        there = [(a.seq, a.id) for a in self.agents.values() if index in self.lists_of(a)]
        return sorted(there + [(a.seq, a.id) for a, lists in self.faded.values() if index in lists])

    def unlist(self, index: str, agent_id: str) -> None:
        self.faded[agent_id][1].discard(index)

    # Damage and accidents, done by hand

    def worker_record_expires(self, worker: Worker) -> None:
        worker.recorded = False
