"""The state machine: rules that steer towards the places where such systems break, composed of single compared steps.

A naive machine lets bugs survive, so most rules are small stories: a worker falls silent while others renew, an interrupt meets
deliveries under way, a parent lends its permit and wants it back, a reply is lost and the call comes again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition
from hypothesis.stateful import rule as any_time
from pool_bench import PREFIX
from pool_steps import DAY, HOUR, LARGE, OUTCOMES, TYPES, WORKERS, PoolSteps

at = st.integers(0, 999)
worker_at = st.integers(0, 2)
some_types = st.sampled_from([("a",), ("b",), ("a", "b"), ("a", "b")])
some_scopes = st.sampled_from([(), (), ("s",), ("t",), ("s", "t")])
any_scope = st.sampled_from(["*", "s", "t"])
policies = st.sampled_from(["o", "o", "o", "s", "ob", "sb"])
small = st.integers(1, 3)
outcomes = st.sampled_from(OUTCOMES)


Rule = TypeVar("Rule", bound=Callable[..., None])


def rule(**strategies: st.SearchStrategy[Any]) -> Callable[[Rule], Rule]:
    """A rule that a machine with a focus may leave out; the bench knows at each step which rule is at work."""

    def decorated(function: Rule) -> Rule:
        @wraps(function)
        def at_work(self: PoolMachine, **drawn: object) -> None:
            self.bench.rule = function.__name__
            function(self, **drawn)

        def in_focus(self: PoolMachine) -> bool:
            return self.focus is None or function.__name__ in self.focus

        return cast("Rule", precondition(in_focus)(cast("Any", any_time)(**strategies)(at_work)))

    return decorated


class PoolMachine(PoolSteps):
    """Rules over one pool. `focus` names the only rules that are used; None is all of them."""

    focus: frozenset[str] | None = None

    @initialize(
        limit=st.sampled_from([0, 1, 2, 3, 3, 4]),
        served=st.sampled_from(["none", "one", "two", "two", "two"]),
        types=some_types,
        day=st.sampled_from(["empty", "crowd", "busy", "busy"]),
    )
    def begin(self, limit: int, served: str, types: tuple[str, ...], day: str) -> None:
        self.bench.begin(limit)
        self.bench.compare("create")
        if served != "none":
            self.join("w1", TYPES if served == "two" else types)
        if served == "two":
            self.join("w2", types)
        if day == "crowd":
            self.crowd()
        elif day == "busy":
            self.busy()

    @rule()
    def more_work(self) -> None:
        self.busy()

    # Spawning

    @rule(count=small, type=st.sampled_from(TYPES), scopes=some_scopes, policy=policies, retries=st.integers(0, 2), input=st.integers(0, 1))
    def spawn_some(self, count: int, type: str, scopes: tuple[str, ...], policy: str, retries: int, input: int) -> None:
        self.spawn([self.wire(type, scopes, policy=policy, retries=retries, input=input) for _ in range(count)])

    @rule(policy=policies, scopes=some_scopes)
    def spawn_mixed_batch(self, policy: str, scopes: tuple[str, ...]) -> None:
        self.spawn([self.wire("a", scopes), self.wire("b", policy=policy), self.wire("a", ("t",), policy="s", retries=1)])

    @rule(key=st.sampled_from(["k1", "k2"]), input=st.integers(0, 1), twice=st.booleans(), bypass=st.booleans())
    def spawn_with_key(self, key: str, input: int, twice: bool, bypass: bool) -> None:
        wires = [self.wire("a", key=key, input=input, policy="ob" if bypass else "o")]
        if twice:
            wires.append(self.wire("a", key=key, policy="ob" if bypass else "o"))
        self.spawn([*wires, self.wire("b")])

    @rule(i=at)
    def spawn_again(self, i: int) -> None:
        """The reply was lost: the same call comes again."""
        again = self.pick(-1 - i % 5, self.spawned)
        if again:
            self.spawn(again[1], again[0])

    @rule(type=st.sampled_from(["c", "a"]), count=st.integers(2, 30))
    def spawn_refused(self, type: str, count: int) -> None:
        """A type that nobody has ever published; more than the pool takes in; more bypass runs than there are places."""
        if type == "c":
            assume(self.model.types)
            self.spawn([self.wire("a"), self.wire("c")])
        else:
            room = self.model.facts.max_queued - len(self.model.unsettled())
            self.spawn([self.wire("a") for _ in range(room + 1)])
        self.spawn([self.wire("a", policy="ob") for _ in range(3)])

    @rule(i=at, scopes=some_scopes, policy=policies, stale=st.booleans(), type=st.sampled_from(TYPES))
    def spawn_child(self, i: int, scopes: tuple[str, ...], policy: str, stale: bool, type: str) -> None:
        self.liven()
        parent = self.pick(i, self.running())
        holder = self.pick(i, self.past) if stale or parent is None else self.holder(parent)
        if holder:
            self.spawn([self.wire(type, scopes, policy=policy)], holder)

    # Starting

    @rule(w=worker_at, free=st.integers(0, 4), woken=st.booleans())
    def claim_some(self, w: int, free: int, woken: bool) -> None:
        """A worker that took the wake-up and leaves work behind pushes it on."""
        self.busy()
        worker = self.pick(w, self.worker_names())
        if worker:
            for type in self.model.workers[worker].types if woken else ():
                self.lose_wake_up(type)
            self.claim(worker, free)

    @rule()
    def claim_all(self) -> None:
        for worker in self.worker_names():
            self.claim(worker, 10)

    @rule(w=worker_at, free=small, meanwhile=st.sampled_from(["nothing", "finish", "lend", "other"]))
    def claim_again(self, w: int, free: int, meanwhile: str) -> None:
        """The reply was lost, and the same nonce comes again."""
        self.liven()
        worker = self.pick(w, self.worker_names())
        if not worker:
            return
        nonce = self.name("again")
        self.claim(worker, free, nonce)
        held = self.model.held_by(worker)
        self.clock(500)
        if meanwhile == "finish" and held:
            self.finish((self.holder(held[-1]), "completed"))
        elif meanwhile == "lend" and held:
            self.lend(self.holder(held[-1]))
        self.claim(worker, free, nonce)
        if meanwhile == "other":
            self.claim(worker, free)
            self.claim(worker, free, nonce)

    @rule(i=at, w=worker_at, again=st.booleans())
    def deliver(self, i: int, w: int, again: bool) -> None:
        """A stock arq worker starts a job, perhaps twice, perhaps a second worker too."""
        self.busy()
        job = self.pick(i, self.admitted_jobs())
        if job:
            self.start(job.agent_id, job.token.value, WORKERS[w])
            if again:
                self.start(job.agent_id, job.token.value, WORKERS[w])
                self.start(job.agent_id, job.token.value, WORKERS[(w + 1) % 3])

    @rule(i=at, w=worker_at)
    def deliver_old(self, i: int, w: int) -> None:
        """Deliveries that are long over come again."""
        for back in range(2):
            old = self.pick(i + back, self.past)
            if old:
                self.start(*old, WORKERS[w])
        agent = self.pick(i, list(self.model.agents))
        self.start(agent or "nobody", "no-token", WORKERS[w])

    @rule(i=at, w=worker_at, other=st.booleans())
    def duplicate(self, i: int, w: int, other: bool) -> None:
        """arq's queue holds a delivery twice; a worker comes upon it."""
        self.liven()
        old = self.pick(i, self.past)
        agent = self.model.agents.get(old[0]) if old else None
        if old and agent:
            self.duplicate_delivery(*old, agent.type)
            worker = self.pick(w, self.worker_names())
            if worker:
                self.claim(worker, 3)

    # Running

    @rule(w=worker_at, budget=st.sampled_from([0, 0, 1, 3, 20]))
    def heartbeat(self, w: int, budget: int) -> None:
        self.liven()
        worker = self.pick(w, self.worker_names())
        if worker:
            self.beat(worker, budget)

    @rule(i=at, w=worker_at)
    def heartbeat_of_others(self, i: int, w: int) -> None:
        """Old tokens, and agents of another worker."""
        pairs = [self.past[(i + k) % len(self.past)] for k in range(min(3, len(self.past)))]
        self.renew(WORKERS[w], [*pairs, ("nobody", "t")])

    @rule(i=at, w=worker_at)
    def adopt(self, i: int, w: int) -> None:
        """The server lost a start that it had acknowledged."""
        self.busy()
        job = self.pick(i, self.admitted_jobs())
        if job:
            self.past.append((job.agent_id, job.token.value))
            self.renew(WORKERS[w], [(job.agent_id, job.token.value)])

    @rule(i=at, outcome=outcomes, count=st.integers(1, 4))
    def finish_some(self, i: int, outcome: str, count: int) -> None:
        self.liven()
        running = self.running()
        ends = [(self.holder(running[(i + k) % len(running)]), outcome) for k in range(min(count, len(running)))]
        if ends:
            self.finish(*ends)

    @rule(i=at, first=outcomes, second=outcomes)
    def finish_twice(self, i: int, first: str, second: str) -> None:
        self.liven()
        agent = self.pick(i, self.running())
        if agent:
            holder = self.holder(agent)
            self.finish((holder, first), (holder, first))
            self.finish((holder, first))
            self.finish((holder, second))
            self.finish(((agent.id, "no-token"), second))

    @rule(i=at, outcome=st.sampled_from([*OUTCOMES, "handed_back"]), hit=st.booleans())
    def finish_unstarted(self, i: int, outcome: str, hit: bool) -> None:
        """The server lost the start, and the first thing it hears is the end."""
        self.busy()
        job = self.pick(i, self.admitted_jobs())
        if job:
            if hit:
                self.interrupt("*", True)
            self.finish(((job.agent_id, job.token.value), outcome))

    @rule(i=at, outcome=outcomes)
    def finish_old(self, i: int, outcome: str) -> None:
        old = self.pick(i, self.past)
        self.finish((old or ("nobody", "t"), outcome), (("nobody", "t"), outcome))

    @rule(count=st.integers(1, 4), again=st.booleans())
    def hand_back(self, count: int, again: bool) -> None:
        """A worker drains and hands back what it runs."""
        self.liven()
        ends = [(self.holder(a), "handed_back") for a in self.running()[:count]]
        if ends:
            self.finish(*ends)
            if again:
                self.finish(*ends)

    @rule(i=at, count=st.integers(1, 2), old=st.booleans(), again=st.booleans())
    def say(self, i: int, count: int, old: bool, again: bool) -> None:
        self.liven()
        agent = self.pick(i, self.running())
        holder = self.pick(i, self.past) if old or agent is None else self.holder(agent)
        self.emit(holder or ("nobody", "t"), count, again)

    # Families

    @rule(i=at, want=st.booleans())
    def lend_or_take_back(self, i: int, want: bool) -> None:
        self.liven()
        agent = self.pick(i, self.running())
        holder = self.holder(agent) if agent else self.pick(i, self.past)
        if holder:
            (self.take_back if want else self.lend)(holder)

    @rule(i=at)
    def lend_with_old_token(self, i: int) -> None:
        self.liven()
        old = self.pick(i, self.past)
        if old:
            self.lend(old)
            self.take_back(old)

    @rule()
    def all_lend(self) -> None:
        self.liven()
        for agent in self.with_status("running"):
            self.lend(self.holder(agent))

    @rule(crowd=st.integers(0, 2))
    def all_take_back(self, crowd: int) -> None:
        """Parents return while newcomers want permits too: the lowest seq goes first."""
        if crowd:
            self.spawn([self.wire("a") for _ in range(crowd)])
        for agent in self.with_status("waiting"):
            self.take_back(self.holder(agent))
            self.take_back(self.holder(agent))

    @rule(i=at, middle=st.sampled_from(["finish", "abort", "interrupt", "lose", "hand_back"]), w=worker_at)
    def family(self, i: int, middle: str, w: int) -> None:
        """A parent spawns, lends, something happens, and it wants its permit back."""
        self.liven()
        parents = [a for a in self.with_status("running", "waiting") if a.depth < self.model.facts.max_depth]
        parent = self.pick(i, parents)
        if not parent:
            return
        holder = self.holder(parent)
        self.spawn([self.wire(parent.type, ("t",)), self.wire(parent.type)], holder)
        self.lend(holder)
        self.claim_all()
        if middle == "abort":
            self.abort(parent.id)
        elif middle == "interrupt":
            self.interrupt("*", False)
        elif middle == "lose" and parent.worker:
            self.lose(parent.worker, LARGE)
        elif middle == "hand_back":
            self.finish((holder, "handed_back"))
        for child in [a for a in self.running() if parent.id in a.ancestors]:
            self.finish((self.holder(child), "completed"))
        self.take_back(holder)
        self.spawn([self.wire("a")], holder)

    # Stops

    @rule(i=at)
    def abort_one(self, i: int) -> None:
        agent = self.pick(i, list(self.model.agents))
        if agent:
            self.abort(agent)

    @rule(i=at, first=st.sampled_from(["nothing", "watch", "interrupt"]))
    def abort_in_every_state(self, i: int, first: str) -> None:
        self.busy()
        if first == "watch":
            self.look_at("watcher")
        elif first == "interrupt":
            self.interrupt("*" if i % 2 else "s", False)
        states = [[a for a in self.unsettled() if a.in_line], self.admitted_agents(), self.with_status("running")]
        states += [
            [a for a in self.unsettled() if a.held_back],
            self.with_status("waiting"),
            [a for a in self.unsettled() if a.returning],
            self.with_status("stopping"),
        ]
        for agent in [self.pick(i, state) for state in states]:
            if agent and not agent.settled:
                self.abort(agent.id)
        for agent in self.with_status("stopping")[:2]:
            self.abort(agent.id)

    @rule(i=at)
    def abort_again(self, i: int) -> None:
        """The reply was lost; and ids that are settled, removed or were never there."""
        again = self.pick(-1 - i % 3, self.aborts)
        if again:
            self.abort(*again)
        self.abort("nobody")
        gone = self.pick(i, list(self.model.tombstones))
        if gone:
            self.abort(gone)

    @rule(i=at)
    def abort_parent(self, i: int) -> None:
        self.busy()
        parent = self.pick(i, [a for a in self.running() if a.parented])
        if parent:
            self.abort(parent.id)
            self.sweep("", LARGE)

    @rule(i=at)
    def stop_with_watchers(self, i: int) -> None:
        """Whatever way an agent ends, whoever waits for it is told."""
        self.busy()
        self.look_at("w1")
        self.look_at("w2")
        self.look_at("w1")
        way = i % 8
        if way == 0:
            self.interrupt("*", True)
            self.sweep("", LARGE)
        elif way == 1:
            self.silence(False, 0)
            self.clock(1)
            self.reap(LARGE)
        elif way == 2 and self.worker_names():
            self.lose(self.worker_names()[0], LARGE)
        elif way == 3:
            interrupt_id = self.interrupt("*", False)
            self.look_at_report(interrupt_id, "w3")
            self.look_at_report(interrupt_id, "w4")
            self.claim_everywhere(3)
            self.finish(*((self.holder(a), "completed") for a in self.running()))
            self.sweep("", LARGE)
        elif way == 4:
            self.interrupt("s", True)
            self.admit(LARGE)
        elif way == 5:
            self.interrupt("s", True)
            self.set_limit(str(self.model.limit + 3))
        elif way == 6:
            self.interrupt("*", False)
            for worker in self.worker_names():
                self.beat(worker, 20)
        else:
            self.interrupt("*", False)
            self.set_limit("4")
            self.join("w2", self.model.workers["w2"].types if "w2" in self.model.workers else TYPES)

    @rule(fate=st.sampled_from(["abort", "interrupt", "finish", "hand_back", "lose", "silence", "renew", "permit", "hit"]))
    def returning_parent(self, fate: str) -> None:
        """A parent stands in line for the permit it lent, and then something else happens to it."""
        self.liven()
        running = [a for a in self.with_status("running") if not a.bypass]
        if not running:
            return
        parent, holder = running[0], self.holder(running[0])
        self.lend(holder)
        self.set_limit(str(self.model.active()))
        self.take_back(holder)
        self.spawn([self.wire("a")])
        if fate == "abort":
            self.abort(parent.id)
        elif fate == "interrupt":
            self.interrupt("*", True)
            self.sweep("", LARGE)
        elif fate in ("finish", "hand_back"):
            self.finish((holder, "completed" if fate == "finish" else "handed_back"))
        elif fate == "lose" and parent.worker:
            self.lose(parent.worker, LARGE)
        elif fate == "silence":
            self.silence(False, 0)
            self.clock(1)
            self.reap(LARGE)
        elif fate == "renew" and parent.worker:
            self.interrupt("*", True)
            self.renew(parent.worker, [holder])
        elif fate == "hit":
            self.interrupt("*", True)
        self.set_limit(str(self.model.active() + 1))
        self.take_back(holder)

    @rule(budget=st.integers(1, 2), forced=st.sampled_from([False, False, True]))
    def leave_during_sweep(self, budget: int, forced: bool) -> None:
        """Agents end while a sweep is under way; the account must still be right."""
        self.busy()
        interrupt_id = self.interrupt("*", forced)
        more = True
        while more:
            more = self.sweep(interrupt_id, budget)
            survivors = [a for a in self.unsettled() if a.survive]
            if survivors and survivors[0].on_worker:
                self.finish((self.holder(survivors[0]), "completed"))
            elif survivors:
                self.abort(survivors[0].id)

    @rule(scope=st.sampled_from(["*", "s", "t", "nobody"]), forced=st.booleans())
    def interrupt_only(self, scope: str, forced: bool) -> None:
        self.interrupt(scope, forced)

    @rule(
        scope=any_scope,
        forced=st.sampled_from([False, False, True]),
        w=worker_at,
        then=st.sampled_from(["start", "claim", "beat", "finish", "reap"]),
    )
    def interrupt_meets(self, scope: str, forced: bool, w: int, then: str) -> None:
        """An interrupt is in force before any record knows of it; everything that may come next comes next."""
        self.busy()
        interrupt_id = self.interrupt(scope, forced)
        self.look_at_report(interrupt_id, "client")
        self.look_at_numbers()
        if then == "start":
            for job in self.admitted_jobs():
                self.start(job.agent_id, job.token.value, WORKERS[w])
        elif then == "claim":
            self.claim_all()
        elif then == "beat":
            for worker in self.worker_names():
                self.beat(worker)
        elif then == "finish":
            ends = [(self.holder(a), "completed") for a in self.running()]
            if ends:
                self.finish(*ends)
        else:
            self.silence(False, 0)
        self.spawn([self.wire("a", ("s",))])

    @rule(scope=any_scope, forced=st.booleans(), spawn_between=st.booleans(), budget=small)
    def two_interrupts(self, scope: str, forced: bool, spawn_between: bool, budget: int) -> None:
        """The first one's end must not undo the second."""
        self.busy()
        first = self.interrupt(scope, forced)
        if spawn_between:
            self.spawn([self.wire("a", ("s", "t")), self.wire("b", ("s", "t"), policy="s")])
        self.interrupt(scope, not forced if budget == 1 else forced)
        while self.sweep(first, budget):
            pass
        self.look_at("")
        self.claim_all()

    @rule(i=at)
    def interrupt_again(self, i: int) -> None:
        """The reply was lost: the same id hits nothing new."""
        again = self.pick(-1 - i % 3, [x for x in self.model.interrupts.values() if x.scope in ("*", "s", "t")])
        if again:
            self.interrupt(again.scope, again.forced, again.id)
            if again.id.startswith("h"):
                self.halt(again.forced, again.id)

    @rule(i=at, budget=st.integers(1, 5))
    def sweep_a_little(self, i: int, budget: int) -> None:
        interrupt = self.pick(i, list(self.model.interrupts.values()))
        self.sweep(interrupt.id if interrupt and i % 3 else "", budget)
        if i % 7 == 0:
            self.sweep("never", budget)

    @rule(budget=st.sampled_from([2, LARGE]))
    def sweep_all(self, budget: int) -> None:
        while self.sweep("", budget):
            pass

    @rule(forced=st.sampled_from([False, False, True]), first=st.sampled_from(["claim", "start", "finish"]))
    def halt_pool(self, forced: bool, first: str) -> None:
        """Under the latch nothing is admitted, nothing is spawned, and nothing admitted may start."""
        self.busy()
        self.halt(forced)
        jobs = self.admitted_jobs()
        if first == "start" and jobs:
            self.start(jobs[-1].agent_id, jobs[-1].token.value, WORKERS[0])
        elif first == "finish":
            self.finish(*((self.holder(a), "handed_back") for a in self.running()[:2]))
        self.claim_all()
        self.look_at("")
        self.spawn([self.wire("a")])
        self.pause(not self.model.paused)
        self.set_limit("5")
        self.give_back_and_want()

    @precondition(lambda self: self.model.halted)
    @rule()
    def unhalt_pool(self) -> None:
        self.unhalt()
        self.unhalt()

    # Settings and time

    @rule(limit=st.integers(0, 5))
    def change_limit(self, limit: int) -> None:
        self.set_limit(str(limit))

    @rule(high=st.integers(2, 6), low=st.integers(0, 1))
    def limit_down_and_up(self, high: int, low: int) -> None:
        self.busy()
        self.set_limit(str(low))
        self.finish_some(i=0, outcome="completed", count=1)
        self.set_limit(str(high))
        self.admit(2)

    @rule(limit=st.sampled_from(["-1", "1.5", "nan", "1000001", "ten", "", "inf"]))
    def refused_limit(self, limit: str) -> None:
        self.set_limit(limit)

    @rule()
    def largest_limit(self) -> None:
        before = self.model.limit
        self.set_limit("1000000")
        self.set_limit(str(before))

    @rule(hold=st.sampled_from(["pause", "limit"]), i=at)
    def hold_and_release(self, hold: str, i: int) -> None:
        """Pause and limit 0 hold newcomers, returning parents and bypass runs, not those already admitted (I12)."""
        self.busy()
        limit = self.model.limit
        self.pause(True) if hold == "pause" else self.set_limit("0")
        self.pause(self.model.paused)
        self.spawn([self.wire("a"), self.wire("b", policy="ob")])
        self.claim_everywhere(1)
        self.give_back_and_want()
        self.look_at("")
        self.look_at_numbers()
        if i % 3 == 0:
            self.interrupt("*", i % 2 == 0)
        if i % 9 == 0:
            self.sweep("", LARGE)
        if i % 4:
            self.pause(False) if hold == "pause" else self.set_limit(str(limit))

    def give_back_and_want(self) -> None:
        """A run ends, and a parent wants its permit."""
        for agent in self.with_status("waiting")[:1]:
            self.take_back(self.holder(agent))
        for agent in self.with_status("running")[:1]:
            self.finish((self.holder(agent), "completed"))
        for agent in self.with_status("running")[:1]:
            self.finish((self.holder(agent), "handed_back"))

    @precondition(lambda self: self.model.paused)
    @rule()
    def unpause_pool(self) -> None:
        self.pause(False)

    @rule(budget=st.sampled_from([1, 2, LARGE]), type=st.sampled_from(TYPES))
    def tend_pool(self, budget: int, type: str) -> None:
        """A scheduler's tick finds also what a lost wake-up left lying."""
        self.lose_wake_up(type)
        self.tend(budget)

    @rule(scheduler=st.sampled_from(["x", "y"]), lease=st.sampled_from([0, 600_000]))
    def lead_pool(self, scheduler: str, lease: int) -> None:
        self.lead(scheduler, lease)
        self.lead("x", 0)
        self.lead("y", 600_000)
        self.lead("x", 600_000)
        self.lead("y", 0)

    @rule(budget=small)
    def admit_some(self, budget: int) -> None:
        self.admit(budget)

    @rule(forward=st.sampled_from([1, 500, 2000, 2001, 11_000, HOUR, -1, -5000, -HOUR]))
    def clock_step(self, forward: int) -> None:
        self.clock(forward)

    @rule(step=st.sampled_from([HOUR, -HOUR]), w=worker_at)
    def clock_jump(self, step: int, w: int) -> None:
        """Hours forward or backward expire nobody."""
        self.clock(step)
        self.reap(LARGE)
        self.clock(-step)
        self.reap(LARGE)

    # Leases

    def silence(self, others_renew: bool, budget: int) -> None:
        """A lease's time passes; one worker says nothing."""
        for _ in range(self.model.facts.lease // self.model.facts.max_step):
            self.clock(self.model.facts.max_step)
            if others_renew:
                for worker in self.worker_names()[1:]:
                    self.beat(worker)
            (self.tend if self.count % 2 else self.reap)(budget or LARGE)

    @rule(others_renew=st.booleans(), budget=st.sampled_from([0, 0, 1, 2]), extra=st.sampled_from([0, 1, 2000]))
    def silent_worker(self, others_renew: bool, budget: int, extra: int) -> None:
        self.busy()
        if extra:
            for type in TYPES:
                self.lose_wake_up(type)
        self.silence(others_renew, budget)
        self.clock(extra)
        self.reap(budget or LARGE)

    @rule(w=worker_at, budget=st.sampled_from([1, 2, LARGE]))
    def late_start(self, w: int, budget: int) -> None:
        """An agent starts late in its worker's lease: the end of the worker's must not take the agent's."""
        self.liven()
        worker = self.pick(w, self.worker_names())
        if not worker:
            return
        self.beat(worker)
        for _ in range(4):
            self.clock(2000)
            self.admit(1)
        self.claim(worker, 3)
        for _ in range(3):
            self.clock(2000)
            self.reap(budget)

    @rule(w=worker_at, budget=st.integers(1, 4))
    def lose_worker_process(self, w: int, budget: int) -> None:
        self.busy()
        worker = self.pick(w, self.worker_names())
        if worker:
            self.lose(worker, budget)
        if budget == 1:
            self.lose(WORKERS[w], LARGE)

    @rule(w=worker_at, gone=st.booleans())
    def leave_pool(self, w: int, gone: bool) -> None:
        self.busy()
        worker = self.pick(w, self.worker_names())
        if worker and not (gone and self.model.held_by(worker)):
            self.leave(worker, gone)

    @rule(w=worker_at, types=some_types)
    def join_pool(self, w: int, types: tuple[str, ...]) -> None:
        known = self.model.workers.get(WORKERS[w])
        self.join(WORKERS[w], known.types if known else types)

    @rule(w=worker_at, then=st.sampled_from(["beat", "silence", "lose"]))
    def forgotten_worker(self, w: int, then: str) -> None:
        """A worker was away for so long that its record expired; what it served must not count as served for ever."""
        worker = self.pick(w, list(self.model.workers.values()))
        if not worker:
            return
        self.expire_worker_record(worker)
        if then == "beat":
            self.beat(worker.name)
        elif then == "silence":
            self.silence(True, 0)
            self.clock(1)
            self.reap(LARGE)
        else:
            self.lose(worker.name, LARGE)

    @rule(i=at, how=st.sampled_from(["queue", "body", "both", "picked"]), served=st.sampled_from([True, True, False]), left=st.booleans())
    def lost_delivery(self, i: int, how: str, served: bool, left: bool) -> None:
        self.busy()
        job = self.pick(i, self.admitted_jobs())
        if job:
            self.lose_delivery(job, how)
            for worker in self.worker_names() if left else ():
                self.leave(worker, False)
            self.silence(served, 0)
            self.clock(1)
            self.reap(LARGE)

    @rule(how=st.sampled_from(["queue", "picked"]), rounds=st.sampled_from([3, 11]))
    def lost_delivery_for_ever(self, how: str, rounds: int) -> None:
        """Whatever is dispatched is lost; in the end the agent settles as undeliverable."""
        job = self.pick(0, self.admitted_jobs())
        agent = self.model.agents[job.agent_id] if job else None
        if not agent or not self.worker_names():
            return
        for _ in range(rounds):
            if not agent.admitted:
                return
            current = self.model.job_of(agent.id, agent.token)
            if current:
                self.lose_delivery(current, how)
            for worker in self.worker_names():
                self.beat(worker)
            for _ in range(6):
                self.clock(2000)
                for worker in self.worker_names():
                    self.beat(worker)
            self.clock(1)
            self.reap(LARGE)

    # Retention

    @rule(budget=st.sampled_from([1, 3, LARGE]), forward=st.sampled_from([0, 5000, DAY]), fade=st.integers(0, 2))
    def apply_retention(self, budget: int, forward: int, fade: int) -> None:
        for agent in [a for a in self.model.agents.values() if a.settled][:fade]:
            self.expire_agent(agent)
        self.clock(forward)
        self.retain(budget)

    @rule(
        older=st.sampled_from([0, 1, 4000]), scope=st.sampled_from(["*", "s", "t"]), budget=st.sampled_from([2, LARGE]), fade=st.booleans()
    )
    def purge_some(self, older: int, scope: str, budget: int, fade: bool) -> None:
        settled = [a for a in self.model.agents.values() if a.settled]
        if fade and settled:
            self.expire_agent(settled[0])
        self.purge(older, scope, budget)

    @rule(i=at, count=st.integers(1, 3), again=st.sampled_from([0, 0, 1, 600_001]))
    def consume_some(self, i: int, count: int, again: int) -> None:
        ids = [*self.ids[-1 - i % 5 :][:count], "nobody"]
        self.consume(ids)
        if again:
            self.clock(again)
            self.consume(ids)

    # Readers

    @rule(client=st.sampled_from(["", "c1", "c2"]))
    def read_records(self, client: str) -> None:
        self.look_at(client)
        self.look_at_numbers()

    @rule(i=at, client=st.sampled_from(["", "c1", "c1"]))
    def read_report(self, i: int, client: str) -> None:
        interrupt = self.pick(-1 - i % 4, list(self.model.interrupts))
        self.look_at_report(interrupt or "never", client)

    @rule(
        i=at,
        most=st.sampled_from([1, 2, 100]),
        looks=st.sampled_from([2, 100]),
        status=st.sampled_from(["", "queued", "running", "waiting", "stopping", "stopped", "completed", "error"]),
        type=st.sampled_from(["", "", "a"]),
        scope=st.sampled_from(["", "", "s"]),
    )
    def read_lists(self, i: int, most: int, looks: int, status: str, type: str, scope: str) -> None:
        self.walk(most, looks, status, type, scope)
        parent = self.pick(i, [a for a in self.model.agents.values() if a.parented])
        if parent:
            self.walk(most, looks, status, tree=parent.root)

    # Damage

    @rule(budget=small, hit=st.booleans())
    def permits_come_free(self, budget: int, hit: bool) -> None:
        """Free permits that nobody has given out yet: admission goes on in portions of its budget."""
        self.busy()
        self.look_at("waiter")
        ghosts = [self.ghost("active") for _ in range(3)]
        self.set_limit(str(self.model.active()))
        if hit:
            self.interrupt("s", True)
        for ghost in ghosts:
            self.exorcise(ghost)
        self.admit(budget)
        self.admit(budget)
        self.tend(1)

    @rule()
    def wrong_type(self) -> None:
        """A key of another type fails the call before its first write."""
        for key in ("lanes", "active", "waiting", "bypass", "unserved", "settled", "scope:*", "events"):
            self.spoiled(key)

    @rule(place=st.sampled_from(["o:a", "s:a", "active", "waiting", "bypass"]))
    def damage(self, place: str) -> None:
        self.ghost(place)

    @rule(i=at)
    def watch_and_wait(self, i: int) -> None:
        """A client asks for an agent and is told of its end."""
        self.liven()
        agent = self.pick(i, self.running())
        if agent:
            self.look_at("waiter")
            self.finish((self.holder(agent), "completed"))

    # The end

    def teardown(self) -> None:
        if self.bench.broken:
            return
        self.drain_to_quiet()
        self.nothing_is_left()
        self.bench.proven_history()

    def drain_to_quiet(self) -> None:
        """Everything finishes, whatever state the rules left."""
        self.unhalt()
        self.pause(False)
        self.set_limit("3")
        self.join("last", TYPES)
        for _ in range(60):
            if not self.model.unsettled():
                break
            while self.sweep("", LARGE):
                pass
            self.claim("last", 20)
            ends = [(self.holder(a), "completed") for a in self.running()]
            if ends:
                self.finish(*ends)
            else:
                self.clock(2000)
                self.beat("last", 20)
        while any(self.model.deliveries(type) for type in TYPES):
            self.claim("last", 20)  # duplicates that were put there by hand
        while self.sweep("", LARGE):
            pass
        for worker in [*self.worker_names()]:
            self.lose(worker, LARGE)
        for _ in range(8):
            self.clock(2000)
            self.tend(LARGE)

    def nothing_is_left(self) -> None:
        """Invariant 9: after quiet no permit, lease or arq job is left, and nothing has no bound."""
        assert not self.model.unsettled(), [a.id for a in self.model.unsettled()]
        while self.bench.aside:
            before = len(self.bench.aside)
            self.tend(LARGE)
            assert len(self.bench.aside) < before, "what was set aside is never cleared"
        for name, key in self.bench.keys.items():
            short = name.removeprefix(PREFIX)
            assert not name.startswith("arq:queue:"), name
            permanent = short in PERMANENT or short.startswith(PERMANENT_PREFIXES)
            assert permanent or key.ttl is not None, f"{name} has no bound"
        cutoffs = {scope for scope, _ in self.model.cutoffs}
        assert cutoffs <= {"*"}, f"cutoffs that hit nobody are kept: {cutoffs}"


PERMANENT = {"config", "clock", "seq", "admissions", "types", "settled", "cutoff", "cutoff:forced", "cutoff:cause", "events"}
PERMANENT_PREFIXES = ("index:", "wake:")  # capped by retention; one token each
