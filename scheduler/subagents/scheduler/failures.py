"""What fails at present, said once: a fault that lasts an hour is one line in the log, not nine thousand."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator
from contextlib import contextmanager

from subagents.errors import RedisUnreachable, SubagentsError

log = logging.getLogger(__name__)


class Failures:
    """The failures of a scheduler's duties, each with its kind, for as long as they last.

    A server that does not answer is one failure, however many duties meet it.

    Args:
        whose: the scheduler, as the log names it.
    """

    def __init__(self, whose: str) -> None:
        self._whose = whose
        self._present: dict[str, type[Exception]] = {}
        self._began_at = 0.0
        self.last: str | None = None

    def __repr__(self) -> str:
        return f"<Failures of {self._whose}: {', '.join(self._present) or 'none'}>"

    @property
    def since(self) -> float | None:
        """The monotonic time since which something fails; None if nothing does."""
        return self._began_at if self._present else None

    @contextmanager
    def noted(self, duty: str) -> Generator[None]:
        """A block that does a duty: whatever it raises is noted and ends there, because a scheduler outlives every failure."""
        try:
            yield
        except Exception as failure:
            self._note(duty, failure)
        else:
            self._present.pop(duty, None)

    def round_is_over(self, failing_before: bool) -> None:
        """Say so if a round went well after one that did not."""
        if failing_before and not self._present:
            log.info("%s: all is well again after %.1f s", self._whose, time.monotonic() - self._began_at)

    def clear(self) -> None:
        """Forget failures of duties that are another scheduler's now."""
        self._present.clear()

    def _note(self, duty: str, failure: Exception) -> None:
        kind = type(failure)
        said = self._present.get(duty) is kind or (kind is RedisUnreachable and kind in self._present.values())
        if not self._present:
            self._began_at = time.monotonic()
        self._present[duty] = kind
        self.last = f"{duty}: {kind.__name__}: {failure}"
        if not said:
            bug = None if isinstance(failure, SubagentsError) else failure
            log.warning("%s: %s fails and is tried again: %s", self._whose, duty, failure, exc_info=bug)
