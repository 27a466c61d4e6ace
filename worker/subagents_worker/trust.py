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

    def end(self, holder: Hashable) -> None:
        """The holder's code is out, or it never got a lease."""
        with self._lock:
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
