"""The bare semaphore in plain Python: who holds, who waits in which order, and until when each is believed to be alive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from plain_records import Token

Answer = list[object]
REAPED_AT_ONCE = 10


@dataclass(eq=False, slots=True)
class Waiter:
    """One place in line."""

    seq: int
    alive_until: int
    since: int


@dataclass(eq=False, slots=True)
class Holder:
    """One held permit."""

    token: Token
    lease_end: int


class PlainPermits:
    """L1 to L15, as sentences."""

    def __init__(self, limit: int, lease: int, max_step: int, clock: int) -> None:
        self.limit, self.lease, self.max_step, self.clock = limit, lease, max_step, clock
        self.last_raw: int | None = None
        self.now, self.wall, self.seq = 0, 0, 0
        self.clears = 0
        self.changed: tuple[int, str] | None = None
        self.line: dict[str, Waiter] = {}
        self.holders: dict[str, Holder] = {}
        self.heard: Counter[str] = Counter()

    def tick(self) -> None:
        last = self.clock if self.last_raw is None else self.last_raw
        self.now += min(max(self.clock - last, 0), self.max_step)
        self.wall, self.last_raw = max(self.wall, self.clock), self.clock

    def reap(self) -> None:
        """Who did not renew in time is out: of the permits, and of the line (L15)."""
        late = sorted((h.lease_end, i) for i, h in self.holders.items() if h.lease_end < self.now)
        for _, permit_id in late[:REAPED_AT_ONCE]:
            del self.holders[permit_id]
        late = sorted((w.alive_until, i) for i, w in self.line.items() if w.alive_until < self.now)
        for _, permit_id in late[:REAPED_AT_ONCE]:
            del self.line[permit_id]

    def in_line(self) -> list[str]:
        return sorted(self.line, key=lambda i: self.line[i].seq)

    def admit(self) -> bool:
        """Permits go to the line in its order; True if some are left after a hundred looks (L1, L3)."""
        for _ in range(100):
            if len(self.holders) >= self.limit or not self.line:
                return False
            permit_id = self.in_line()[0]
            waiter = self.line.pop(permit_id)
            if waiter.alive_until >= self.now:
                self.holders[permit_id] = Holder(Token(), self.now + self.lease)
                self.heard[f"granted {permit_id}"] += 1
        return len(self.holders) < self.limit and bool(self.line)

    def standing(self, permit_id: str) -> Answer:
        if permit_id in self.holders:
            return ["held", self.holders[permit_id].token, str(self.lease)]
        if permit_id in self.line:
            return ["waiting", self.in_line().index(permit_id) + 1, str(self.clears)]
        return ["gone", str(self.clears)]

    def acquire(self, permit_id: str) -> Answer:
        self.tick()
        self.reap()
        if permit_id not in self.holders and permit_id not in self.line:
            self.seq += 1
            self.line[permit_id] = Waiter(self.seq, self.now + self.lease, self.wall)
        self.admit()
        return self.standing(permit_id)

    def extend(self, permit_id: str, token: str) -> None:
        """A whole lease more for a permit or a place in line; a permit whose lease ran out is given back, whoever asks."""
        holder = self.holders.get(permit_id)
        if holder and token in ("", holder.token.value):
            if holder.lease_end >= self.now:
                holder.lease_end = self.now + self.lease
            else:
                del self.holders[permit_id]
        elif not holder and permit_id in self.line:
            self.line[permit_id].alive_until = self.now + self.lease

    def extended(self, permit_id: str, token: str) -> Answer:
        holder = self.holders.get(permit_id)
        if token and not (holder and holder.token.value == token):
            return ["stale"]
        return self.standing(permit_id)

    def renew(self, permit_id: str, token: str) -> Answer:
        self.tick()
        self.extend(permit_id, token)
        self.reap()
        self.admit()
        return self.extended(permit_id, token)

    def keep(self, held: Sequence[tuple[str, str]]) -> Answer:
        """What renew does, for many at once."""
        self.tick()
        for permit_id, token in held:
            self.extend(permit_id, token)
        self.reap()
        self.admit()
        return ["renewed", str(self.lease), [self.extended(permit_id, token) for permit_id, token in held]]

    def release(self, permit_id: str, token: str) -> Answer:
        self.tick()
        holder, code = self.holders.get(permit_id), "released"
        if token and not (holder and holder.token.value == token):
            code = "stale"
        elif holder:
            del self.holders[permit_id]
        else:
            self.line.pop(permit_id, None)
        self.reap()
        self.admit()
        return [code]

    def clear(self, budget: int) -> Answer:
        self.tick()
        gone = self.in_line()[:budget]
        self.clears += bool(gone)
        for permit_id in gone:
            del self.line[permit_id]
            self.heard[f"cleared {permit_id}"] += 1
        return ["cleared", len(gone), int(bool(self.line))]

    def set_limit(self, limit: str, by: str) -> Answer:
        if not limit.isdigit() or int(limit) > 1_000_000:
            return ["out_of_bounds"]
        self.tick()
        before, self.limit = self.limit, int(limit)
        self.changed = (self.wall, by)
        self.reap()
        return ["limit", str(before), int(self.admit())]

    def statistics(self, permit_id: str) -> Answer:
        self.tick()
        self.reap()
        self.admit()
        line = self.in_line()
        oldest = str(self.wall - self.line[line[0]].since) if line else ""
        position = str(line.index(permit_id) + 1) if permit_id in line else ""
        return ["statistics", str(self.limit), len(self.holders), len(line), oldest, position]

    def expected_keys(self) -> dict[str, object]:
        """What the server must hold, beside `config`."""
        keys: dict[str, object] = {
            "pending:@": {i: float(w.seq) for i, w in self.line.items()},
            "lanes": {"@": float(min(w.seq for w in self.line.values()))} if self.line else {},
            "waiters": {i: float(w.alive_until) for i, w in self.line.items()},
            "since": {i: str(w.since) for i, w in self.line.items()},
            "active": {i: float(h.lease_end) for i, h in self.holders.items()},
            "tokens": {i: h.token.value for i, h in self.holders.items()},
        }
        if self.last_raw is not None:
            keys["clock"] = {"raw": str(self.last_raw), "now": str(self.now), "wall": str(self.wall)}
        if self.seq:
            keys["seq"] = str(self.seq)
        return {name: value for name, value in keys.items() if value}
