"""Proves the invariants from the event history alone: it knows neither the model nor the keys, only what the stream says happened."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

TERMINAL = frozenset({"completed", "steered", "aborted", "stopped", "error"})
OF_THE_POOL = frozenset({"interrupt", "limit", "paused", "unpaused", "halted", "unhalted"})


@dataclass
class History:
    """What has been read so far."""

    created: dict[str, int] = field(default_factory=dict[str, int])
    bypass: set[str] = field(default_factory=set[str])
    ended: set[str] = field(default_factory=set[str])
    permits: set[str] = field(default_factory=set[str])
    on_worker: set[str] = field(default_factory=set[str])
    lent: set[str] = field(default_factory=set[str])
    admitted_once: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    cutoffs: dict[bool, int] = field(default_factory=lambda: {False: 0, True: 0})
    tokens: set[str] = field(default_factory=set[str])
    limit: int = 0
    paused: bool = False
    halted: bool = False

    def read(self, entry: Mapping[str, str], survivors: set[str]) -> None:
        """Take in one event; an impossible one raises."""
        kind, agent = entry["kind"], entry["agent_id"]
        if kind in OF_THE_POOL:
            self._setting(kind, entry)
            return
        if kind == "corrupt":
            return
        if kind == "created":
            assert agent not in self.created, f"created twice: {entry}"
            assert int(entry["seq"]) > max(self.created.values(), default=0), f"spawn numbers go backwards: {entry}"
            assert not self.halted, f"spawned under the latch: {entry}"
            self.created[agent] = int(entry["seq"])
            if entry["bypass"] == "1":
                self.bypass.add(agent)
            return
        assert agent in self.created, f"before it was created: {entry}"
        assert agent not in self.ended, f"after its terminal event: {entry}"
        assert int(entry["seq"]) == self.created[agent], f"another spawn number: {entry}"
        if kind in TERMINAL:
            self.ended.add(agent)
            self._gone(agent)
        else:
            getattr(self, f"_{kind}")(agent, entry, survivors)

    def _setting(self, kind: str, entry: Mapping[str, str]) -> None:
        if kind == "limit":
            self.limit = int(entry["max_concurrent"])
        elif kind in ("paused", "unpaused"):
            self.paused = kind == "paused"
        elif kind in ("halted", "unhalted"):
            self.halted = kind == "halted"
        elif entry["scope"] == "*":
            forced = entry["forced"] == "1"
            self.cutoffs[forced] = max(self.cutoffs[forced], int(entry["seq"]))

    def _hit_by_everyone(self, agent: str, survivors: set[str]) -> bool:
        return self.created[agent] <= self.cutoffs[True] or (agent not in survivors and self.created[agent] <= self.cutoffs[False])

    def _within_limit(self, agent: str, entry: Mapping[str, str], survivors: set[str]) -> None:
        assert not self.paused, f"while paused: {entry}"
        assert not self.halted, f"while halted: {entry}"
        assert not self._hit_by_everyone(agent, survivors), f"after an interrupt of everyone: {entry}"
        if agent not in self.bypass:
            assert agent not in self.permits, f"a second permit: {entry}"
            self.permits.add(agent)
            assert len(self.permits) <= self.limit, f"over the limit: {entry}"
            assert int(entry["active"]) >= len(self.permits), f"held permits are not counted: {entry}"
            assert int(entry["max_concurrent"]) == self.limit, f"another limit: {entry}"

    def _admitted(self, agent: str, entry: Mapping[str, str], survivors: set[str]) -> None:
        self._within_limit(agent, entry, survivors)
        self.admitted_once.append((agent, int(entry["number"])))

    def _resumed(self, agent: str, entry: Mapping[str, str], survivors: set[str]) -> None:
        assert agent in self.lent, f"resumed without having lent: {entry}"
        self.lent.discard(agent)
        self._within_limit(agent, entry, survivors)

    def _started(self, agent: str, entry: Mapping[str, str], survivors: set[str]) -> None:
        assert not self.halted, f"started under the latch: {entry}"
        assert not self._hit_by_everyone(agent, survivors), f"a stopped agent started: {entry}"
        assert agent not in self.on_worker, f"started twice: {entry}"
        assert entry["token"] not in self.tokens, f"a token was used again: {entry}"
        assert agent in self.permits or agent in self.bypass, f"started without a permit: {entry}"
        self.tokens.add(entry["token"])
        self.on_worker.add(agent)

    def _adopted(self, agent: str, entry: Mapping[str, str], survivors: set[str]) -> None:
        assert agent not in self.on_worker or agent in self.lent, f"adopted, though it runs: {entry}"
        self.on_worker.add(agent)

    def _waiting(self, agent: str, entry: Mapping[str, str], survivors: set[str]) -> None:
        assert agent in self.permits, f"lent what it did not hold: {entry}"
        assert agent in self.on_worker, f"lent without running: {entry}"
        self.permits.discard(agent)
        self.lent.add(agent)

    def _stopping(self, agent: str, entry: Mapping[str, str], survivors: set[str]) -> None:
        assert agent in self.on_worker, f"told to stop without running: {entry}"

    def _lost(self, agent: str, entry: Mapping[str, str], survivors: set[str]) -> None:
        assert agent in self.on_worker, f"lost without running: {entry}"
        self._gone(agent)

    def _redispatched(self, agent: str, entry: Mapping[str, str], survivors: set[str]) -> None:
        if entry["reason"] != "delivery_lost":
            self._gone(agent)

    def _gone(self, agent: str) -> None:
        for place in (self.permits, self.on_worker, self.lent):
            place.discard(agent)


def check_history(entries: Iterable[Mapping[str, str]], limit: int, survivors: set[str]) -> History:
    """Read a whole history; returns what it proved, or raises at the first event that cannot be."""
    history = History(limit=limit)
    for entry in entries:
        history.read(entry, survivors)
    numbers = [number for _, number in history.admitted_once]
    assert numbers == sorted(set(numbers)), "admission numbers go up by each admission"
    return history
