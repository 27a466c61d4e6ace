"""The line of one process for the permits of a semaphore: who of this process waits, in which order, and how each gets its turn.

Order is the promise, so two tasks do the talking, one call at a time. The *usher* takes places to the end of the server's line in the
order in which they were asked for. The *herald* learns who was granted and hands the permits out in that same order: as the server
grants first come, first served, everyone before a granted place has been granted too. What makes the herald look is a message, a
new subscription, or the keeper's round, which misses nothing; a message may.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Coroutine

from subagents.errors import InfrastructureError, PermitCleared, RedisUnreachable, SemaphoreClosed
from subagents.permit import Permit, Place
from subagents.permit_keeper import BATCH, PermitKeeper, keep
from subagents.scripts import calls
from subagents.scripts.gateway import Gateway
from subagents.scripts.replies import Code, Reply
from subagents.scripts.subscription import Subscription
from subagents.settings import LeaseTimes

PARTING = 0.5
"""Seconds for which one who is stopped waits until the server knows that it left; the message goes out in any case."""


class PermitLine:
    """The line of one process."""

    def __init__(self, gateway: Gateway, prefix: str, name: str, times: LeaseTimes, keeper: PermitKeeper) -> None:
        self._gateway, self._prefix, self._name, self._times, self._keeper = gateway, prefix, name, times, keeper
        self._subscription = Subscription(gateway, (f"{prefix}permits",), self._on_message, keeper.hurry)
        self._arrivals: deque[Place] = deque()
        self._at_the_door: Place | None = None
        self._line: dict[str, Place] = {}
        self._due: dict[str, Place] = {}
        self._arrived, self._news = asyncio.Event(), asyncio.Event()
        self._servants: list[asyncio.Task[None]] = []
        self._partings: set[asyncio.Task[None]] = set()
        self._stopping = self._stopped = False

    def __repr__(self) -> str:
        return f"<PermitLine of {len(self._line) + len(self._arrivals)}>"

    def start(self) -> None:
        """Begin to serve; the subscription waits until somebody has to wait."""
        for servant in (self._usher, self._herald):
            task = asyncio.create_task(servant(), name=f"subagents-permit-{servant.__name__.strip('_')}")
            task.add_done_callback(self._on_end)
            self._servants.append(task)

    async def stop(self) -> None:
        """Turn away everyone who waits, and see those off who are leaving."""
        self._stopping = True
        for place in self._everyone():
            self._turn_away(place, SemaphoreClosed(self._name))
            self.leave(place)
        if self._partings:
            await asyncio.wait(self._partings, timeout=max(PARTING, self._times.renew_every))
        self._stopped = True
        for task in (*self._servants, *self._partings):
            task.cancel()
        await asyncio.gather(*self._servants, *self._partings, return_exceptions=True)
        await self._subscription.stop()

    def enter(self) -> Place:
        """Take a place behind everyone of this process."""
        place = Place(self._on_news)
        self._arrivals.append(place)
        self._arrived.set()
        return place

    async def wait(self, place: Place, timeout: float | None = None) -> Permit:
        """The permit, when it is this place's turn. Whoever stops waiting leaves, and gives back what was granted meanwhile (L13)."""
        deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
        try:
            await place.joined
            async with asyncio.timeout_at(deadline):
                permit = await place.turn
            if self._stopping:
                raise SemaphoreClosed(self._name)
            return permit
        except TimeoutError:
            await self.see_off(place)
            raise TimeoutError(f"no permit of semaphore {self._name!r} came free within {timeout:g} s") from None
        except BaseException:
            await self.see_off(place)
            raise

    def leave(self, place: Place) -> asyncio.Task[None]:
        """Give up a place, or the permit that it has become."""
        if place.parting is None:
            self._forget(place)
            place.settle()
            place.parting = self._parting(self._withdraw(place))
        return place.parting

    async def see_off(self, place: Place) -> None:
        """Give up a place, and wait for a moment until the server knows."""
        await self._seen_off(self.leave(place))

    async def give_back(self, permit: Permit) -> None:
        """Give a permit back; when this returns, the next one has it. A caller that is cancelled meanwhile does not stop it."""
        await asyncio.shield(self._parting(self._release(permit)))

    async def drop(self, permit: Permit) -> None:
        """Give a permit back on the way out by an error: a server that does not answer holds nobody up for long."""
        await self._seen_off(self._parting(self._release(permit)))

    async def _usher(self) -> None:
        """Take new places to the end of the server's line, in order."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._arrivals:
                await self._join(self._arrivals.popleft())

    async def _join(self, place: Place) -> None:
        if place.parting is not None:
            return
        self._at_the_door, place.asked, sent = place, True, time.monotonic()
        place.answered.clear()
        try:
            reply = await self._gateway(calls.permit_acquire(self._prefix, place.id))
        except InfrastructureError as error:
            for hopeless in (place, *self._arrivals):  # they asked before it was known; each would wait as long again
                self._turn_away(hopeless, error)
            self._arrivals.clear()
            return
        finally:
            self._at_the_door = None
            place.answered.set()
        if place.parting is not None:  # it left meanwhile, and says so to the server now that the server knows it
            return
        if reply.code is Code.HELD and not self._line and self._fresh(sent):
            self._hand_over(place, reply, sent)
        else:
            self._stand(place, reply)
            await self._subscription.start()

    def _stand(self, place: Place, reply: Reply) -> None:
        self._line[place.id] = place
        self._keeper.keep(place)
        if reply.code is Code.HELD:  # those before it have been granted too and go first, or the answer took too long
            place.granted = True
        else:
            place.clears = reply.number(1)
        if place.granted or place.early_news:
            self._on_news(place)
        place.join()

    async def _herald(self) -> None:
        """Look who was granted, and hand out the permits in order."""
        while True:
            await self._news.wait()
            self._news.clear()
            while self._due:
                places = self._up_to_the_last_due()
                for at in range(0, len(places), BATCH):
                    await self._look([place for place in places[at : at + BATCH] if place.id in self._line])

    def _up_to_the_last_due(self) -> list[Place]:
        """Everyone from the head of the line to the last one of whom there is news."""
        places, unseen = list[Place](), len(self._due)
        for place in self._line.values():
            places.append(place)
            unseen -= place.id in self._due
            if not unseen:
                break
        return places

    async def _look(self, batch: list[Place]) -> None:
        due = [place for place in batch if self._due.pop(place.id, None)]  # what comes in from now on is newer than the answer
        sent = time.monotonic()
        try:
            answers = (await self._gateway(keep(self._prefix, batch))).answers
        except RedisUnreachable:  # places outlive an outage, and the gateway has waited for long
            for place in due:
                self._on_news(place)
            return
        except InfrastructureError as error:
            for place in batch:
                self._turn_away(place, error)
            return
        fresh = self._fresh(sent)
        for place, answer in zip(batch, answers, strict=True):
            if place.id not in self._line:  # it left meanwhile
                continue
            if answer.code is Code.HELD:
                place.granted = True
                if fresh:
                    self._hand_over(place, answer, sent)
                else:
                    self._on_news(place)
            elif answer.code is Code.WAITING:
                continue
            elif not place.granted and answer.number(0) != place.clears:
                self._turn_away(place, PermitCleared(self._name))
            else:
                self._rejoin(place)

    def _hand_over(self, place: Place, answer: Reply, sent: float) -> None:
        permit = Permit(place.id, answer.text(0), self._times, sent)
        place.granted = True
        self._forget(place)
        self._keeper.keep(permit)
        place.join()
        if not place.turn.done():  # else its owner is on the way out, and gives it back
            place.turn.set_result(permit)

    def _rejoin(self, place: Place) -> None:
        """The lease of the place itself ran out, while this process was frozen or cut off: it goes to the end of the line."""
        self._forget(place)
        place.granted = place.early_news = False
        self._arrivals.append(place)
        self._arrived.set()

    def _turn_away(self, place: Place, error: BaseException) -> None:
        if place.parting is not None:  # nobody is there to hear it
            return
        self._forget(place)
        for future in (place.joined, place.turn):
            if not future.done():
                future.set_exception(error)

    def _forget(self, place: Place) -> None:
        self._line.pop(place.id, None)
        self._due.pop(place.id, None)
        self._keeper.drop(place.id)

    def _fresh(self, sent: float) -> bool:
        """True if an answer to a call sent then came in time to rely on its lease."""
        return time.monotonic() - sent <= self._times.trust_window / 2

    def _on_message(self, channel: str, text: str) -> None:
        del channel
        id = text.partition(" ")[2]
        if id in self._line:
            self._on_news(self._line[id])
        elif self._at_the_door is not None and self._at_the_door.id == id:
            self._at_the_door.early_news = True  # the message has overtaken the answer that it follows

    def _on_news(self, place: Place) -> None:
        if place.id in self._line:
            self._due[place.id] = place
            self._news.set()

    def _on_end(self, task: asyncio.Task[None]) -> None:
        """A servant never ends by itself; if it does, those who wait must hear of it."""
        if not task.cancelled() and (error := task.exception()) is not None:
            for place in self._everyone():
                self._turn_away(place, error)

    def _everyone(self) -> list[Place]:
        at_the_door = [self._at_the_door] if self._at_the_door else []
        return [*self._line.values(), *at_the_door, *self._arrivals]

    async def _withdraw(self, place: Place) -> None:
        if place.asked and not self._stopped:
            await place.answered.wait()
            await self._gateway(calls.permit_release(self._prefix, place.id, ""))

    async def _release(self, permit: Permit) -> None:
        self._keeper.drop(permit.id)
        left_at = time.monotonic()
        if not self._stopped:  # else nobody renews it any more, and it comes back by its lease
            permit.end(await self._gateway(calls.permit_release(self._prefix, permit.id, permit.token)), left_at)

    def _parting(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name="subagents-permit-parting")
        self._partings.add(task)
        task.add_done_callback(self._on_parted)
        return task

    def _on_parted(self, task: asyncio.Task[None]) -> None:
        self._partings.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waited for it has been told; for others, the lease runs out

    async def _seen_off(self, parting: asyncio.Task[None]) -> None:
        await asyncio.wait({parting}, timeout=PARTING)
