"""The nouns of the plain model: agents, tokens, deliveries, workers, interrupts, as ordinary Python objects."""

from __future__ import annotations

from dataclasses import dataclass, field

SETTLED = frozenset({"completed", "steered", "aborted", "stopped", "error"})
ON_WORKER = frozenset({"running", "waiting", "stopping"})


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """What the modelled pool was made with; times in ms."""

    lease: int = 12_000
    max_step: int = 2_000
    max_depth: int = 2
    max_bypass: int = 2
    max_queued: int = 24
    keep_settled: int = 43_200_000
    keep_consumed: int = 600_000
    keep_tombstone: int = 604_800_000
    max_dispatches: int = 10


@dataclass(eq=False, slots=True)
class Token:
    """A fencing token. The scripts invent its text; the machine learns it after the step, and requires that it is new."""

    value: str = ""


@dataclass(eq=False, slots=True)
class Agent:
    """One agent, described by facts rather than by the collections it happens to be in."""

    id: str
    seq: int
    type: str
    scopes: tuple[str, ...]
    ancestors: tuple[str, ...]
    survive: bool
    bypass: bool
    retries: int
    key: str
    fingerprint: str
    input: str
    depth: int
    enqueued_at: int
    description: str = ""
    timeout: str = ""
    stall_timeout: str = ""
    status: str = "queued"
    token: Token | None = None
    worker: str | None = None
    attempt: int = 0
    dispatches: int = 0
    lease_end: int = 0
    lent: bool = False  # its permit is given back while it waits for a child (also while it is stopping)
    returning: bool = False  # stands in line for the permit it lent
    dropped: bool = False  # an interrupt of `*` threw its lane away; it waits only for the sweep
    admitted_at: int | None = None
    started_at: int | None = None
    stop_requested_at: int | None = None
    noted: tuple[str, ...] = ()  # those of its interrupts that were known when it was told to stop
    ended_at: int | None = None
    facts: dict[str, str] = field(default_factory=dict[str, str])
    result: str | None = None
    watchers: list[str] = field(default_factory=list[str])
    interrupts: list[str] = field(default_factory=list[str])
    said: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    drop_at: int = 0
    ttl: int = 0
    parented: bool = False  # a child was spawned, so it stands in its own tree

    @property
    def root(self) -> str:
        return self.ancestors[0] if self.ancestors else self.id

    @property
    def marks(self) -> tuple[str, ...]:
        """Every scope that can hit it."""
        return ("*", *self.scopes, *(f"@{ancestor}" for ancestor in self.ancestors))

    @property
    def settled(self) -> bool:
        return self.status in SETTLED

    @property
    def on_worker(self) -> bool:
        return self.status in ON_WORKER

    @property
    def admitted(self) -> bool:
        return self.status == "queued" and self.token is not None

    @property
    def held_back(self) -> bool:
        """A bypass run that has not been dispatched."""
        return self.bypass and self.status == "queued" and self.token is None

    @property
    def holds_permit(self) -> bool:
        return not self.settled and not self.bypass and self.token is not None and not self.lent

    @property
    def lends_permit(self) -> bool:
        return not self.settled and self.lent

    @property
    def in_line(self) -> bool:
        return self.status == "queued" and self.token is None and not self.bypass and not self.dropped

    @property
    def lane(self) -> str:
        return ("s:" if self.survive else "o:") + self.type

    @property
    def may_run_again(self) -> bool:
        return self.attempt <= self.retries


@dataclass(eq=False, slots=True)
class Job:
    """One delivery in arq's hands. The flags say which of its keys exist."""

    agent_id: str
    token: Token
    type: str
    number: int
    et: int
    queued: bool = True
    body: bool = True
    in_progress: bool = False
    retry: bool = False


@dataclass(eq=False, slots=True)
class Worker:
    """One worker process."""

    name: str
    types: tuple[str, ...]
    lease_end: int
    joined_at: int
    seen_at: int
    running: int = 0
    recorded: bool = True  # its hash is there; gone once nobody renewed it for a long time


@dataclass(eq=False, slots=True)
class Interrupt:
    """One interrupt: whom it hit, how far its sweep is, who has not left yet."""

    id: str
    scope: str
    cutoff: int
    forced: bool
    kill: bool
    reason: str
    by: str
    at: int
    queued: set[str]  # the agents it hit before they had started
    cursor: int = 0
    swept: bool = False
    accounts: dict[str, tuple[str, int | None]] = field(default_factory=dict[str, tuple[str, int | None]])
    left: dict[str, int] = field(default_factory=dict[str, int])
    completed_at: int | None = None
    watchers: list[str] = field(default_factory=list[str])

    def subject(self, agent: Agent) -> bool:
        """True if this very interrupt stops that agent."""
        return agent.seq <= self.cutoff and self.scope in agent.marks and (self.forced or not agent.survive)


@dataclass(frozen=True, slots=True)
class Event:
    """One entry of the history."""

    kind: str
    agent_id: str
    seq: int
    facts: dict[str, str | Token]
