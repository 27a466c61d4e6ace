"""A permit that is held, and a place in the line for one, as the process that owns them sees them.

Each is renewed from the keeper's thread, which tells it the server's answer, and used in the event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from subagents import keys
from subagents.scripts.replies import Code, Reply
from subagents.settings import LeaseTimes


class Permit:
    """The right to run, held under a lease that is renewed for as long as the block runs.

    `id` is what `Semaphore.statistics` knows it by. `lost` turns true when the lease ran out.
    """

    def __init__(self, id: str, token: str, times: LeaseTimes, sent: float) -> None:
        self.id, self.token = id, token
        self.confirmed_at = sent
        self._times = times
        self._refused = False
        self._ended: bool | None = None

    def __repr__(self) -> str:
        state = "lost" if self.lost else "held" if self._ended is None else "given back"
        return f"<Permit {self.id}, {state}>"

    @property
    def lost(self) -> bool:
        """True once the lease is void, so that somebody else may hold this permit by now; look at it between the steps of long work.

        It is so when the server refused a renewal, or when a whole lease passed without an answer (L15). After the block it says
        whether the permit was still held at its end.
        """
        if self._ended is not None:
            return self._ended
        return self._refused or time.monotonic() - self.confirmed_at > self._times.lease

    @property
    def trusted_until(self) -> float:
        """Until when, on the monotonic clock, nobody else can have been given this permit."""
        return self.confirmed_at + self._times.trust_window

    def hear(self, answer: Reply, sent: float) -> None:
        """Take in what the server answered to a renewal that was sent at `sent`."""
        if answer.code is Code.HELD:
            self.confirmed_at = sent
        else:
            self._refused = True

    def end(self, code: Code, left_at: float) -> None:
        """Take in what the server answered to the release after the block was left.

        `stale` within the trust window is the answer to a release that was sent twice because its first answer was lost.
        """
        self._ended = code is Code.STALE and (self._refused or left_at > self.trusted_until)


class Place:
    """A place in the line, from the moment a permit is asked for until it is there or no longer wanted.

    `joined` is done when the server has answered that it took the place in; `turn` becomes the permit.
    """

    token = ""

    def __init__(self, on_news: Callable[[Place], None]) -> None:
        self.id = keys.new_id()
        self._loop, self._on_news = asyncio.get_running_loop(), on_news
        self.joined: asyncio.Future[None] = self._loop.create_future()
        self.turn: asyncio.Future[Permit] = self._loop.create_future()
        self.answered = asyncio.Event()  # the server is not being asked to take it in right now
        self.asked = False  # the server may know of it
        self.granted = False  # the server was seen to have granted it
        self.early_news = False  # a message about it came before the answer that took it in
        self.clears = 0  # how often the semaphore had been cleared when it was taken
        self.parting: asyncio.Task[None] | None = None  # nobody wants it any more

    def __repr__(self) -> str:
        return f"<Place {self.id}, {'left' if self.parting else 'granted' if self.granted else 'waiting'}>"

    def hear(self, answer: Reply, sent: float) -> None:
        """Take in, in the keeper's thread, what the server answered to a renewal: all but "still waiting" is news for the line."""
        del sent
        if answer.code is not Code.WAITING:
            self.look_again()

    def look_again(self) -> None:
        """Have the line look how this place stands; called in the keeper's thread."""
        with suppress(RuntimeError):  # the loop is closed, nobody waits
            self._loop.call_soon_threadsafe(self._on_news, self)

    def join(self) -> None:
        """The server has taken it in."""
        if not self.joined.done():
            self.joined.set_result(None)

    def settle(self) -> None:
        """Nobody will look at the two futures any more: what went wrong has been told already, or concerns nobody."""
        for future in (self.joined, self.turn):
            if future.done() and not future.cancelled():
                future.exception()
