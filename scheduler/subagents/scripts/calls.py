"""What each script takes and what its answer means: one function a script, pure, so that async and threaded callers share it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from subagents import keys
from subagents.scripts.replies import Code, Reply, pairs

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One call of one script, not sent yet: which script, on which prefix, with what, and how to read its answer."""

    script: str
    prefix: str
    args: tuple[str, ...]
    read: Callable[[Reply], T]


@dataclass(frozen=True, slots=True)
class Spec:
    """An agent that this worker has started, as the start script hands it over."""

    id: str
    token: str
    type: str
    seq: int
    input: str
    scopes: tuple[str, ...]
    ancestors: tuple[str, ...]
    survive: bool
    bypass: bool
    timeout: float | None
    stall_timeout: float | None
    attempt: int
    run: int
    depth: int
    parent: str | None
    root: str
    description: str | None

    @classmethod
    def of(cls, items: Sequence[object]) -> Spec:
        """Read the flat list that `starting.lua` makes."""
        text = [str(item) for item in items]
        return cls(
            id=text[0],
            token=text[1],
            type=text[2],
            seq=int(text[3]),
            input=text[4],
            scopes=_csv(text[5]),
            ancestors=_csv(text[6]),
            survive=text[7] == "1",
            bypass=text[8] == "1",
            timeout=_seconds(text[9]),
            stall_timeout=_seconds(text[10]),
            attempt=int(text[11]),
            run=int(text[12]),
            depth=int(text[13]),
            parent=text[14] or None,
            root=text[15] or text[0],
            description=text[16] or None,
        )


@dataclass(frozen=True, slots=True)
class Claimed:
    """What a worker got: agents to run, and the lease under which it holds them, in seconds."""

    lease: float
    specs: tuple[Spec, ...]


@dataclass(frozen=True, slots=True)
class Renewed:
    """What a heartbeat brought: for each agent, in order, running, waiting, stop or stale."""

    known: bool
    lease: float
    version: int
    codes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Settlement:
    """The end of one run, decided: what is written when it is reported."""

    id: str
    token: str
    outcome: str
    error_kind: str = ""
    error: str = ""
    result: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """The account of an interrupt as the script gives it."""

    wall: int
    now: int
    lease: int
    complete: bool
    facts: tuple[str, ...]
    agents: dict[str, str]
    left: tuple[tuple[str, str, str], ...]
    next: str

    def worker_is_silent(self, lease_end: float) -> bool:
        """True if a worker with this lease has missed about four heartbeats in a row."""
        return self.lease - (lease_end - self.now) > self.lease / 2


def prove(prefix: str) -> Call[str | None]:
    """The first right that this server user lacks; None if it has them all."""
    return Call("prove", prefix, (), lambda reply: reply.text(0) if reply.code is Code.NO_RIGHT else None)


def create(prefix: str, settings: Mapping[str, str], by: str) -> Call[Reply]:
    """Make a pool or a semaphore unless it is there."""
    return Call("create", prefix, (by, *(text for pair in settings.items() for text in pair)), _whole)


def spawn(prefix: str, wires: Iterable[tuple[str, ...]], parent: tuple[str, str] = ("", "")) -> Call[Reply]:
    """Take in agents, in order; `parent` is the id and token of the agent that spawns them."""
    return Call("spawn", prefix, (keys.nonce(), *parent, *(text for wire in wires for text in wire)), _whole)


def admit(prefix: str, budget: int) -> Call[bool]:
    """Give out free permits; True while there is more to do."""
    return Call("admit", prefix, (keys.nonce(), str(budget)), lambda reply: reply.flag(1))


def claim(prefix: str, worker: str, free: int, types: Sequence[str], nonce: str) -> Call[Claimed]:
    """Start up to `free` agents on this worker; the same nonce again returns the same agents."""
    return Call("claim", prefix, (nonce, worker, str(free), *types), _claimed)


def start(prefix: str, agent_id: str, token: str, worker: str) -> Call[Claimed | Code]:
    """Start one agent that arq delivered."""
    return Call("start", prefix, (keys.nonce(), agent_id, token, worker), _started)


def renew(prefix: str, worker: str, held: Sequence[tuple[str, str]], housekeeping: int) -> Call[Renewed]:
    """Renew every lease of a worker process: `held` are ids and tokens."""
    flat = (text for pair in held for text in pair)
    return Call("renew", prefix, (keys.nonce(), worker, str(housekeeping), *flat), _renewed)


def finish(prefix: str, settlements: Sequence[Settlement]) -> Call[tuple[Reply, ...]]:
    """Report the ends of runs; one answer for each."""
    flat = (text for s in settlements for text in (s.id, s.token, s.outcome, s.error_kind, s.error, s.result))
    return Call("finish", prefix, (keys.nonce(), "1", *flat), lambda reply: reply.nested(0))


def abort(prefix: str, agent_id: str, reason: str, by: str) -> Call[Reply]:
    """Stop one agent and its descendants."""
    return Call("abort", prefix, (keys.nonce(), agent_id, reason, by), _whole)


def interrupt(prefix: str, interrupt_id: str, scope: str, *, force: bool, kill: bool, reason: str, by: str) -> Call[int]:
    """Raise the cutoff of a scope; returns the cutoff."""
    args = (interrupt_id, scope, _flag(force), _flag(kill), reason, by)
    return Call("interrupt", prefix, args, lambda reply: reply.number(0))


def halt(prefix: str, interrupt_id: str, *, force: bool, reason: str, by: str) -> Call[int]:
    """Close the latch and interrupt everyone; returns the cutoff."""
    return Call("halt", prefix, (interrupt_id, _flag(force), reason, by), lambda reply: reply.number(0))


def unhalt(prefix: str, reason: str, by: str) -> Call[bool]:
    """Open the latch; True while there is more to admit."""
    return Call("unhalt", prefix, (keys.nonce(), reason, by), _changed)


def pause(prefix: str, paused: bool, reason: str, by: str) -> Call[bool]:
    """Stop admission or let it go on; True while there is more to admit."""
    return Call("pause", prefix, (keys.nonce(), _flag(paused), reason, by), _changed)


def set_limit(prefix: str, limit: int, by: str) -> Call[tuple[int, bool]]:
    """Change `max_concurrent`; returns the limit before, and whether there is more to admit."""
    return Call("set_limit", prefix, (keys.nonce(), str(limit), by), lambda reply: (reply.number(0), reply.flag(1)))


def sweep(prefix: str, interrupt_id: str, budget: int) -> Call[bool]:
    """Carry an interrupt ('' = every open one) into the records; True while there is more to do."""
    return Call("sweep", prefix, (keys.nonce(), interrupt_id, str(budget)), lambda reply: reply.flag(1))


def report(prefix: str, interrupt_id: str, client: str = "", cursor: str = "0") -> Call[Report | None]:
    """The account of an interrupt, page by page of its agents; None if it is unknown."""
    return Call("report", prefix, (interrupt_id, client, cursor), _report)


def reap(prefix: str, budget: int) -> Call[tuple[int, bool]]:
    """Take back what dead workers hold; returns how much was done, and whether there is more to admit."""
    return Call("reap", prefix, (keys.nonce(), str(budget)), lambda reply: (reply.number(0), reply.flag(1)))


def tend(prefix: str, budget: int) -> Call[bool]:
    """One tick of a scheduler; True while there is more to do."""
    return Call("tend", prefix, (keys.nonce(), str(budget)), lambda reply: reply.flag(0))


def lead(prefix: str, scheduler: str, lease_ms: int) -> Call[bool]:
    """Take or renew the lead (0 ms: give it up); True if this scheduler leads now."""
    return Call("lead", prefix, (scheduler, str(lease_ms)), lambda reply: reply.code is Code.LEADING)


def lose(prefix: str, worker: str, budget: int) -> Call[bool]:
    """Report a dead worker process; True while it still holds agents."""
    return Call("lose", prefix, (keys.nonce(), worker, str(budget)), lambda reply: reply.flag(0))


def join(prefix: str, worker: str, facts: str, types: Mapping[str, str]) -> Call[Renewed]:
    """A worker is there and runs these types."""
    flat = (text for pair in types.items() for text in pair)
    return Call("join", prefix, (keys.nonce(), worker, facts, *flat), _renewed)


def leave(prefix: str, worker: str, *, gone: bool) -> Call[Reply]:
    """A worker takes nothing new, or is gone."""
    return Call("leave", prefix, (keys.nonce(), worker, _flag(gone)), _whole)


def lend(prefix: str, agent_id: str, token: str) -> Call[Code]:
    """Give the permit back while waiting for a descendant."""
    return Call("lend", prefix, (keys.nonce(), agent_id, token), lambda reply: reply.code)


def take_back(prefix: str, agent_id: str, token: str) -> Call[Code]:
    """Ask for the lent permit again."""
    return Call("take_back", prefix, (keys.nonce(), agent_id, token), lambda reply: reply.code)


def get(prefix: str, ids: Sequence[str], client: str = "") -> Call[tuple[Reply, ...]]:
    """Records by id; with a client's name that client is told of later settlements."""
    return Call("get", prefix, (client, *ids), lambda reply: tuple(Reply.of(item) for item in reply.lists()))


def list_page(prefix: str, *, status: str, type: str, scope: str, tree: str, most: int, below: str, looks: int) -> Call[Reply]:
    """A page of records, newest first."""
    return Call("list", prefix, (status, type, scope, tree, str(most), below, str(looks)), _whole)


def consume(prefix: str, ids: Sequence[str]) -> Call[Reply]:
    """Results were taken; keep them only for a short time from now on."""
    return Call("consume", prefix, tuple(ids), _whole)


def emit(prefix: str, agent_id: str, token: str, events: Sequence[tuple[str, str]]) -> Call[Reply]:
    """An agent says something: pairs of kind and JSON. One call at a time for each agent: a lost answer is told by the newest one only."""
    return Call("emit", prefix, (keys.nonce(), agent_id, token, *(text for event in events for text in event)), _whole)


def stats(prefix: str) -> Call[dict[str, str]]:
    """The pool in numbers."""
    return Call("stats", prefix, (), lambda reply: pairs(reply.rest))


def unsettled(prefix: str, scope: str) -> Call[int]:
    """How many agents of a scope are not settled."""
    return Call("unsettled", prefix, (scope,), lambda reply: reply.number(0))


def retain(prefix: str, budget: int) -> Call[bool]:
    """Apply retention; True while there is more to do."""
    return Call("retain", prefix, (str(budget),), lambda reply: reply.flag(1))


def purge(prefix: str, older_than: str, scope: str, budget: int, after: str) -> Call[tuple[int, str]]:
    """Remove settled agents; returns how many, and where to go on ('' = through)."""
    return Call("purge", prefix, (older_than, scope, str(budget), after), lambda reply: (reply.number(0), reply.text(1)))


def permit_acquire(prefix: str, permit_id: str) -> Call[Reply]:
    """Stand in line for a permit of a bare semaphore."""
    return Call("permit_acquire", prefix, (keys.nonce(), permit_id), _whole)


def permit_renew(prefix: str, permit_id: str, token: str) -> Call[Reply]:
    """Keep a permit, or a place in line."""
    return Call("permit_renew", prefix, (keys.nonce(), permit_id, token), _whole)


def permit_release(prefix: str, permit_id: str, token: str) -> Call[Code]:
    """Give a permit back, or leave the line."""
    return Call("permit_release", prefix, (keys.nonce(), permit_id, token), lambda reply: reply.code)


def permit_clear(prefix: str, budget: int) -> Call[tuple[int, bool]]:
    """Turn away those who wait; returns how many, and whether more wait."""
    return Call("permit_clear", prefix, (keys.nonce(), str(budget)), lambda reply: (reply.number(0), reply.flag(1)))


def permit_limit(prefix: str, limit: int, by: str) -> Call[tuple[int, bool]]:
    """Change the limit of a bare semaphore; returns the limit before, and whether there is more to admit."""
    return Call("permit_limit", prefix, (keys.nonce(), str(limit), by), lambda reply: (reply.number(0), reply.flag(1)))


def permit_statistics(prefix: str, permit_id: str) -> Call[Reply]:
    """A bare semaphore in numbers."""
    return Call("permit_statistics", prefix, (keys.nonce(), permit_id), _whole)


def _whole(reply: Reply) -> Reply:
    return reply


def _changed(reply: Reply) -> bool:
    return reply.code is Code.CHANGED and reply.flag(0)


def _claimed(reply: Reply) -> Claimed:
    return Claimed(reply.number(1) / 1000, tuple(Spec.of(items) for items in reply.lists(2)))


def _started(reply: Reply) -> Claimed | Code:
    return _claimed(reply) if reply.code is Code.STARTED else reply.code


def _renewed(reply: Reply) -> Renewed:
    return Renewed(reply.code is not Code.UNKNOWN_WORKER, reply.number(1) / 1000, reply.number(2), reply.texts(3))


def _report(reply: Reply) -> Report | None:
    if reply.code is Code.UNKNOWN:
        return None
    left = [str(item) for item in reply.list(6)]
    return Report(
        wall=reply.number(0),
        now=reply.number(1),
        lease=reply.number(2),
        complete=reply.flag(3),
        facts=tuple(str(item) for item in reply.list(4)),
        agents=pairs(reply.list(5)),
        left=tuple((left[at], left[at + 1], left[at + 2]) for at in range(0, len(left), 3)),
        next=reply.text(7),
    )


def _flag(value: bool) -> str:
    return "1" if value else "0"


def _csv(text: str) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()


def _seconds(text: str) -> float | None:
    return float(text) / 1000 if text else None
