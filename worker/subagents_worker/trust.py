"""How long this process may trust its leases: the kernel ends it before a lease that it could not renew can be somebody else's."""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable, Iterable

from subagents.deadman import DeadMansSwitch
from subagents.settings import LeaseTimes


class Trust:
    """Arms the dead-man's switch while agent code runs or may begin to run.

    For every holder of a lease it knows when the call that last granted it was *sent*. The earliest of them, plus the lease, minus the
    margin, is the deadline: the server granted the lease later than that, so the process is dead before the lease is void.
    """

    def __init__(self, lease: float) -> None:
        self.times = LeaseTimes(lease)
        self._switch = DeadMansSwitch()
        self._lock = threading.Lock()
        self._granted: dict[Hashable, float] = {}
        self._asked: set[Hashable] = set()
        self._given_up: set[Hashable] = set()

    def __repr__(self) -> str:
        return f"<Trust of {len(self._granted)} holders, {self._switch!r}>"

    @property
    def left(self) -> float | None:
        """Seconds until the process ends if nothing is renewed; None while no agent code runs."""
        with self._lock:
            return min(self._granted.values()) + self.times.trust_window - time.monotonic() if self._granted else None

    def begin(self, holder: Hashable, sent_at: float) -> None:
        """Agent code of this holder may run from now on, under a lease asked for at `sent_at`; called before the call is sent."""
        with self._lock:
            self._granted[holder] = sent_at
            if sent_at <= min(self._granted.values()):
                self._arm()

    def ask(self, holder: Hashable, sent_at: float) -> None:
        """A call that may bring agents is sent. The switch is armed before, but an answer that takes long does not cost the process its
        life: the lifeline gives the call up (`give_up_old`), and what it brings must be asked for again."""
        self.begin(holder, sent_at)
        with self._lock:
            self._asked.add(holder)

    def answered(self, holder: Hashable) -> bool:
        """The call's answer is here; False if it was given up, and nothing may begin under its lease."""
        with self._lock:
            in_time = holder in self._asked
            self._asked.discard(holder)
            return in_time

    def give_up_old(self) -> None:
        """Give up calls whose answer takes long, for example because agent code blocks the loop that would read it."""
        with self._lock:
            old = {holder for holder in self._asked if time.monotonic() - self._granted[holder] > self.times.trust_window / 4}
            self._asked -= old
            self._given_up |= old
            for holder in old:
                del self._granted[holder]
            if old:
                self._arm()

    def gave_up(self, holder: Hashable) -> bool:
        """True while a call that was given up has not come to its end."""
        with self._lock:
            return holder in self._given_up

    def end(self, holder: Hashable) -> None:
        """The holder's code is out, or it never got a lease."""
        with self._lock:
            self._asked.discard(holder)
            self._given_up.discard(holder)
            if self._granted.pop(holder, None) is not None:
                self._arm()

    def renewed(self, holders: Iterable[Hashable], sent_at: float) -> None:
        """The leases of these holders were renewed by a call sent at that time."""
        with self._lock:
            for holder in holders:
                if holder in self._granted:
                    self._granted[holder] = max(self._granted[holder], sent_at)
            self._arm()

    def _arm(self) -> None:
        if self._granted:
            self._switch.arm(min(self._granted.values()) + self.times.trust_window)
        else:
            self._switch.disarm()
