"""The dead-man's switch: the kernel ends this process at a deadline, unless the deadline is moved in time.

A lease that was not renewed is somebody else's. A process that was frozen and wakes up after that must not run one more line, and no
code of its own can see to that: a watchdog thread wakes up beside the code that it should stop. So the kernel does it. An interval
timer runs on while the process is stopped; its signal, SIGALRM at its default, ends the process before it runs again.

The timer counts real time without the time for which the whole machine is suspended: a suspended laptop or virtual machine is not
covered, nor is work that was handed to somebody else. SIGALRM and ITIMER_REAL belong to the switch while it is in use.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress

from subagents.errors import InvalidArgument

_lock = threading.Lock()
_deadlines: dict[DeadMansSwitch, float] = {}


class DeadMansSwitch:
    """Ends this process by SIGALRM at a deadline that its owner keeps moving. A process may have several: the earliest deadline counts.

    Make it in the main thread; any thread may arm and disarm it. A child made by `fork` starts with every switch off.

    Raises:
        InvalidArgument: no interval timers here (Windows), not in the main thread, or SIGALRM or its timer is used by other code.
    """

    def __init__(self) -> None:
        if not hasattr(signal, "setitimer"):
            raise InvalidArgument("a dead-man's switch needs interval timers, which this platform does not have")
        if threading.current_thread() is not threading.main_thread():
            raise InvalidArgument("a dead-man's switch must be made in the main thread: signals are set up there")
        with _lock:
            if callable(signal.getsignal(signal.SIGALRM)) or (not _deadlines and signal.getitimer(signal.ITIMER_REAL)[0]):
                raise InvalidArgument("a dead-man's switch needs SIGALRM and its timer (ITIMER_REAL), which other code uses here")
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})

    def __repr__(self) -> str:
        deadline = _deadlines.get(self)
        return "<DeadMansSwitch, off>" if deadline is None else f"<DeadMansSwitch, {deadline - time.monotonic():.2f} s left>"

    def arm(self, deadline: float) -> None:
        """End the process at `deadline` (on `time.monotonic`'s clock) unless told otherwise before; at once if it has passed."""
        with _lock:
            _deadlines[self] = deadline
            _set_timer()

    def disarm(self) -> None:
        """Let the process live; harmless if the switch is off."""
        with _lock:
            if _deadlines.pop(self, None) is not None:
                _set_timer()


def _set_timer() -> None:
    if not _deadlines:
        signal.setitimer(signal.ITIMER_REAL, 0)
        return
    left = min(_deadlines.values()) - time.monotonic()
    if left <= 0:
        signal.raise_signal(signal.SIGALRM)
    signal.setitimer(signal.ITIMER_REAL, left)


def _forget_after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # another thread may have held it at the moment of the fork
    _deadlines.clear()


with suppress(AttributeError):  # no fork on Windows
    os.register_at_fork(after_in_child=_forget_after_fork)
