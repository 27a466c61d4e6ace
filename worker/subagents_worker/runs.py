"""The runs of one worker process: who is running, since when, and who was told to end. Read by the loop and by the lifeline thread."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from subagents.scripts.calls import Spec
from subagents_worker.settlement import Cause

SHORTEST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
INTERRUPTS_REMEMBERED = 256


@dataclass(frozen=True, slots=True)
class Interrupt:
    """An interrupt as it was broadcast."""

    cutoff: int
    forced: bool
    kill: bool
    scope: str

    @classmethod
    def heard(cls, text: str) -> Interrupt:
        """Read `<cutoff> <forced> <kill> <id> <scope>`."""
        cutoff, forced, kill, _interrupt_id, scope = text.split(" ", 4)
        return cls(int(cutoff), forced == "1", kill == "1", scope)

    def hits(self, spec: Spec) -> bool:
        """True if it stops this agent."""
        if spec.seq > self.cutoff or (spec.survive and not self.forced):
            return False
        return self.scope == "*" or self.scope in spec.scopes or (self.scope[0] == "@" and self.scope[1:] in spec.ancestors)


@dataclass(eq=False, slots=True)
class Run:
    """One run of one agent in this process."""

    spec: Spec
    grace: float = 0.0
    task: asyncio.Task[object] | None = None
    cause: Cause | None = None
    told_at: float | None = None
    kill: bool = False
    code_runs: bool = True
    lent: bool = False
    last_sign: float = field(default_factory=time.monotonic)
    resumed: asyncio.Event = field(default_factory=asyncio.Event)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    def stop(self, cause: Cause) -> None:
        """Tell the run to end: the cooperative signal, then cancel, and again with back-off until it is out. A clean-up that awaits has
        a quarter of the grace to itself before it is cancelled again. The first cause stands, except that a lost lease overrides every
        other: nothing may be written then."""
        if self.cause is None or cause is Cause.LEASE_LOST:
            first, self.cause = self.cause is None, cause
            if first:
                self.told_at = time.monotonic()
                self.stopping.set()
                self._cancel(max(self.grace / 4, SHORTEST_PAUSE))

    def _cancel(self, pause: float) -> None:
        if self.task is None or self.task.done() or not self.code_runs:
            return
        self.task.cancel()
        self.task.get_loop().call_later(pause, self._cancel, min(pause * 2, max(pause, LONGEST_PAUSE)))


class Runs:
    """Every run of this process, by agent id."""

    def __init__(self) -> None:
        self._runs: dict[str, Run] = {}
        self._lock = threading.Lock()
        self._interrupts: deque[Interrupt] = deque(maxlen=INTERRUPTS_REMEMBERED)
        self.on_change: Callable[[], None] = lambda: None

    def __repr__(self) -> str:
        return f"<Runs of {len(self)} agents>"

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def occupied(self) -> int:
        """Worker slots in use; an agent that lent its permit gave back its slot with it."""
        return sum(not run.lent for run in self.snapshot())

    def holds(self, agent_id: str) -> bool:
        """True if this agent runs here."""
        return agent_id in self._runs

    def snapshot(self) -> list[Run]:
        """The runs at this instant."""
        with self._lock:
            return list(self._runs.values())

    def add(self, run: Run) -> None:
        """A run begins. An interrupt that was heard between its start in the pool and this moment hits it now."""
        with self._lock:
            self._runs[run.spec.id] = run
            hit = any(interrupt.hits(run.spec) for interrupt in self._interrupts)
        if hit:
            run.stop(Cause.STOP)

    def remove(self, run: Run) -> None:
        """A run is over and settled."""
        with self._lock:
            if self._runs.get(run.spec.id) is run:
                del self._runs[run.spec.id]
        self.on_change()

    def lend(self, run: Run, lent: bool) -> None:
        """A run gives its slot back for a time, or has it again; it then runs even if the process is above its slots (N1)."""
        run.lent = lent
        self.on_change()

    def heard(self, message: str) -> None:
        """Act on a message of the control channel (in the loop)."""
        word, _, rest = message.partition(" ")
        if word == "interrupt":
            interrupt = Interrupt.heard(rest)
            with self._lock:
                self._interrupts.append(interrupt)
            for run in self.snapshot():
                if interrupt.hits(run.spec):
                    run.kill = run.kill or interrupt.kill
                    run.stop(Cause.STOP)
        elif word == "abort":
            self.stop(rest, Cause.STOP)
        elif word == "resumed" and rest in self._runs:
            self._runs[rest].resumed.set()

    def answered(self, run: Run, code: str) -> None:
        """Act on what a renewal said of a run (in the loop)."""
        if code == "stop":
            run.stop(Cause.STOP)
        elif code == "stale" and self._runs.get(run.spec.id) is run and run.code_runs:
            run.stop(Cause.LEASE_LOST)
        elif code == "running":
            run.resumed.set()

    def stop(self, agent_id: str, cause: Cause) -> None:
        """Tell one run to end, if it is here."""
        run = self._runs.get(agent_id)
        if run is not None:
            run.stop(cause)

    def stop_all(self, cause: Cause) -> None:
        """Tell every run to end."""
        for run in self.snapshot():
            run.stop(cause)
