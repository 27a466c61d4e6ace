"""The probe log: agents write when their code really began and ended, to a file outside Redis, because state in Redis hides overlap."""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

PROBE_VARIABLE = "SUBAGENTS_TEST_PROBE"


def mark(word: str, agent_id: str, token: str) -> None:
    """Write one line, atomically: word, agent, token, the machine's monotonic time, process."""
    path = os.environ.get(PROBE_VARIABLE)
    if path:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            os.write(descriptor, f"{word} {agent_id} {token} {time.monotonic():.6f} {os.getpid()}\n".encode())
        finally:
            os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Mark:
    """One line of a probe log."""

    word: str
    agent_id: str
    token: str
    at: float
    process: int


class ProbeLog:
    """What really happened, as the agents wrote it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def marks(self, word: str | None = None) -> list[Mark]:
        """All marks in the order of their times."""
        if not self.path.exists():
            return []
        lines = (line.split() for line in self.path.read_text().splitlines())
        marks = [Mark(word, agent, token, float(at), int(process)) for word, agent, token, at, process in lines]
        return sorted((m for m in marks if word is None or m.word == word), key=lambda m: m.at)

    def started(self) -> list[str]:
        """Agents in the order in which their code began."""
        return [mark.agent_id for mark in self.marks("begin")]

    def starts_of(self, agent_id: str) -> int:
        """How often the agent's code began."""
        return sum(mark.agent_id == agent_id for mark in self.marks("begin"))

    def peak(self) -> int:
        """The largest number of agents whose code ran at one time; one that never wrote its end counts until its last mark."""
        last: dict[tuple[str, str], float] = {}
        first: dict[tuple[str, str], float] = {}
        for mark in self.marks():
            key = (mark.agent_id, mark.token)
            first.setdefault(key, mark.at)
            last[key] = mark.at
        changes = Counter[tuple[float, int]]()
        for key in first:
            changes[first[key], 1] += 1
            changes[last[key], -1] += 1
        running = peak = 0
        for (_, step), count in sorted(changes.items(), key=lambda item: (item[0][0], item[0][1])):
            running += step * count
            peak = max(peak, running)
        return peak
