"""How a worker was asked to run."""

from __future__ import annotations

from dataclasses import dataclass

from subagents import keys, settings


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """What `subagents worker` takes.

    Args:
        modules: importable names, or paths of .py files, that declare agents.
        processes: worker processes, 1..1024.
        slots: agents that one process runs at once, 1..10 000.
        grace: seconds that agents have to end once they were told to; after that their process ends, 0..3600.
        drain_timeout: seconds for which a worker that was told to go waits for its agents, 0..86400.
    """

    url: str
    pool: str
    modules: tuple[str, ...]
    processes: int = 1
    slots: int = 100
    grace: float = 10.0
    drain_timeout: float = 30.0

    def __post_init__(self) -> None:
        keys.pool_name(self.pool)
        settings.whole_number("processes", self.processes, 1, 1024)
        settings.whole_number("slots", self.slots, 1, 10_000)
        settings.seconds("grace", self.grace, 0, 3600)
        settings.seconds("drain-timeout", self.drain_timeout, 0, 86400)
