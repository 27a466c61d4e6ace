"""The pool as any service sees it: spawn agents by name, follow them, and stay in control."""

from __future__ import annotations

import asyncio
import getpass
import logging
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from subagents import history, keys, listing, settings, spawning
from subagents.controls import Controls
from subagents.errors import InvalidArgument, PoolClosed, SubagentsError
from subagents.handle import AbortAnswer, AgentHandle
from subagents.interrupts import Interrupts
from subagents.latch import Latch
from subagents.lineage import child_of_running_agent
from subagents.listing import AgentPage
from subagents.models import AgentEvent, AgentRecord, InterruptReport, OnInterrupt, PoolEvent, PoolStats, SpawnRequest
from subagents.scope import Scope
from subagents.scripts import calls
from subagents.scripts.gateway import Gateway
from subagents.scripts.replies import Code
from subagents.settings import PoolSettings
from subagents.statuses import Status
from subagents.waits import Waits, record_of

log = logging.getLogger(__name__)

PURGE_BUDGET = 200
LONGEST_WAIT, LONGEST_PATIENCE = 3600, 86400


class Pool:
    """A named pool on a Redis server. `async with Pool(url) as pool: …` opens it, and makes it if it is not there yet.

    Args:
        url: `redis://`, `rediss://` or `unix://`.
        name: 1 to 64 letters, digits, `_`, `.`, `-`.
        max_concurrent, lease, max_depth, max_bypass: used only if the pool does not exist yet (defaults 4, 15 s, 3, 0); the stored
            ones stand until someone sets them (G3).
        by: who acts, for the history; `user@host` by default.
        patience: seconds, 0..86400, for which a call is tried again while the server does not answer.

    Raises, on opening:
        InvalidArgument, RedisUnreachable, PermissionDenied, ForeignSchema.
    """

    def __init__(
        self,
        url: str,
        *,
        name: str = "default",
        max_concurrent: int | None = None,
        lease: float | None = None,
        max_depth: int | None = None,
        max_bypass: int | None = None,
        by: str | None = None,
        patience: float = 10.0,
    ) -> None:
        self.name = keys.pool_name(name)
        self.prefix = keys.prefix(name)
        self.by = by or _whoami()
        given = {"max_concurrent": max_concurrent, "lease": lease, "max_depth": max_depth, "max_bypass": max_bypass}
        self._settings = PoolSettings(**{key: value for key, value in given.items() if value is not None})  # type: ignore[arg-type]
        self.gateway = Gateway(url, patience=settings.seconds("patience", patience, 0, LONGEST_PATIENCE))
        self._waits = Waits(self.gateway, self.prefix)
        self._interrupts = Interrupts(self.gateway, self.prefix, self._waits)
        self._controls = Controls(self.gateway, self.prefix, self.by)

    @classmethod
    def from_env(cls, **options: Any) -> Self:
        """The pool that `SUBAGENTS_REDIS_URL` and `SUBAGENTS_POOL` name."""
        url = settings.url_from_environment()
        if url is None:
            raise InvalidArgument(
                f"set {settings.REDIS_URL_VARIABLE} to the Redis server of the pool, for example redis://127.0.0.1:6379/0"
            )
        options.setdefault("name", settings.pool_from_environment())
        return cls(url, **options)

    def __repr__(self) -> str:
        return f"Pool({self.gateway.where!r}, name={self.name!r})"

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def open(self) -> None:
        """Make the pool if it does not exist yet."""
        try:
            await self.gateway(calls.create(self.prefix, self._settings.stored(), self.by))
        except BaseException:
            await self.gateway.close()
            raise

    async def close(self) -> None:
        """End this client's own waits with `PoolClosed`; agents go on (P19)."""
        await self._waits.stop()
        await self.gateway.close(PoolClosed)

    # Spawning ------------------------------------------------------------------------------------------------------

    async def spawn(
        self,
        type: str,
        input: Any = None,
        *,
        scopes: Sequence[str] = (),
        key: str | None = None,
        description: str | None = None,
        timeout: float | None = None,
        stall_timeout: float | None = None,
        retries: int = 0,
        on_interrupt: OnInterrupt = "stop",
        bypass_queue: bool = False,
    ) -> AgentHandle:
        """Spawn an agent and return its handle at once; it never waits for a permit (P1). See `SpawnRequest` for the arguments.

        Raises:
            UnknownType, InvalidInput, InputTooLarge, InvalidArgument, KeyConflict, PoolHalted, QueueFull, BypassRefused,
            ParentStopped, TooDeep; RedisUnreachable, ServerOutOfMemory.
        """
        request = SpawnRequest.of(
            type=type,
            input=input,
            scopes=tuple(scopes) if not isinstance(scopes, str) else scopes,
            key=key,
            description=description,
            timeout=timeout,
            stall_timeout=stall_timeout,
            retries=retries,
            on_interrupt=on_interrupt,
            bypass_queue=bypass_queue,
        )
        return (await self.spawn_many([request]))[0]

    async def spawn_many(self, requests: Sequence[SpawnRequest]) -> list[AgentHandle]:
        """Spawn in order, one round trip for each hundred; a batch with a bad request in it spawns nothing."""
        ids = await spawning.spawn(self.gateway, self.prefix, requests)
        return [child_of_running_agent(self, agent_id) or AgentHandle(self, agent_id) for agent_id in ids]

    async def run(self, type: str, input: Any = None, **options: Any) -> AgentRecord:
        """Spawn and wait; the record comes whatever the outcome. Cancelling `run()` aborts its agent (P4)."""
        spawning = asyncio.ensure_future(self.spawn(type, input, **options))
        try:
            return await (await asyncio.shield(spawning)).wait()
        except asyncio.CancelledError:
            await asyncio.shield(self._abort_spawned(spawning))
            raise

    async def _abort_spawned(self, spawning: asyncio.Future[AgentHandle]) -> None:
        """Abort what a cancelled `run()` has spawned, also if it was cancelled before it knew the id."""
        try:
            await (await spawning).abort("run() was cancelled")
        except SubagentsError as failure:
            log.warning("the agent of a cancelled run() was not aborted: %s", failure)

    # Following -----------------------------------------------------------------------------------------------------

    def handle(self, agent_id: str) -> AgentHandle:
        """A handle made anew from an id."""
        return AgentHandle(self, agent_id)

    async def get(self, agent_id: str) -> AgentRecord:
        """A snapshot of one agent. Raises `UnknownAgent`, or `AgentExpired` once retention has dropped it."""
        return record_of((await self.gateway(calls.get(self.prefix, [agent_id])))[0])

    async def list(
        self,
        *,
        status: Status | str | None = None,
        type: str | None = None,
        scope: str | None = None,
        tree: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> AgentPage:
        """A page of up to `limit` (1..1000) records, newest first; `page.cursor` leads to the next (P9)."""
        return await listing.page(self.gateway, self.prefix, status=status, type=type, scope=scope, tree=tree, limit=limit, cursor=cursor)

    async def settled(self, agent_id: str, timeout: float | None = None) -> AgentRecord:
        """What `AgentHandle.wait` does."""
        return await self._waits.settled(agent_id, timeout)

    async def consume(self, agent_id: str) -> None:
        """Say that a result was taken, which starts its short retention (P10)."""
        await self.gateway(calls.consume(self.prefix, [agent_id]))

    async def wait_idle(self, scope: str = keys.EVERYTHING, timeout: float | None = None) -> bool:
        """Wait until no agent of the scope is unsettled, also those spawned meanwhile; False if `timeout` seconds were not enough (P7)."""

        async def read() -> int:
            return await self.gateway(calls.unsettled(self.prefix, scope))

        return await self._waits.until(f"idle {scope}", read, lambda left: left == 0, timeout) == 0

    def events(self, after: str | None = None, *, follow: bool = True) -> AsyncIterator[PoolEvent]:
        """The pool's history after a cursor (None: from now on; `"0"`: from the oldest kept); without `follow` it ends at the newest."""
        return history.pool_events(self.gateway, self.prefix, after, follow)

    def agent_events(self, agent_id: str, after: str = "0") -> AsyncIterator[AgentEvent]:
        """What `AgentHandle.events` does."""
        return history.agent_events(self.gateway, self.prefix, agent_id, after)

    async def stats(self) -> PoolStats:
        """The pool in numbers, as it stands in one instant."""
        numbers = await self.gateway(calls.stats(self.prefix))
        oldest = numbers.pop("oldest_wait_ms")
        return PoolStats.model_validate({**numbers, "oldest_wait_s": int(oldest) / 1000 if oldest else None})

    # Staying in control --------------------------------------------------------------------------------------------

    async def set_max_concurrent(self, limit: int) -> int:
        """Change the limit live: an integer 0..1 000 000, 0 holds everything; returns the one before (L7 to L9)."""
        return await self._controls.set_max_concurrent(limit)

    async def abort(self, agent_id: str, reason: str | None = None) -> AbortAnswer:
        """Stop one agent and its descendants; an id that was never issued changes nothing (P5, P6)."""
        if not keys.is_agent_id(agent_id):
            return AbortAnswer.UNKNOWN
        reply = await self.gateway(calls.abort(self.prefix, agent_id, reason or "", self.by))
        return AbortAnswer.ALREADY_TERMINAL if reply.code is Code.EXPIRED else AbortAnswer(reply.code.value)

    async def interrupt(
        self, scope: str = keys.EVERYTHING, *, reason: str | None = None, wait: float = 5, force: bool = False, kill: bool = False
    ) -> InterruptReport:
        """Stop everything of a scope that has been spawned so far, running and queued, on every worker (I9).

        Args:
            scope: a scope, or `*` for everyone.
            wait: seconds to wait for the account to be complete; 0 returns what is known at once.
            force: stop also agents spawned with `on_interrupt="survive"`.
            kill: a process whose agents do not respond is ended even if bystanders run in it.
        """
        settings.seconds("wait", wait, 0, LONGEST_WAIT)
        return await self._interrupts.send(scope, reason=reason, by=self.by, wait=wait, force=force, kill=kill)

    async def interrupt_report(self, interrupt_id: str) -> InterruptReport:
        """The account of an earlier interrupt as it stands now; kept for a day (I13)."""
        return await self._interrupts.report(interrupt_id)

    async def halt(self, *, reason: str | None = None, wait: float = 5, force: bool = False) -> InterruptReport:
        """Close the latch: interrupt everyone, stop admission, refuse spawns, until `unhalt` (I12); `wait`, `force` as in `interrupt`."""
        settings.seconds("wait", wait, 0, LONGEST_WAIT)
        return await self._interrupts.halt(reason=reason, by=self.by, wait=wait, force=force)

    async def unhalt(self, *, reason: str | None = None) -> None:
        """Open the latch; a pause that was on stays on."""
        await self._controls.unhalt(reason)

    async def pause(self, *, reason: str | None = None) -> None:
        """Stop admission; what is admitted goes on."""
        await self._controls.pause(reason)

    async def unpause(self, *, reason: str | None = None) -> None:
        """Let admission go on."""
        await self._controls.unpause(reason)

    async def purge(self, older_than: float, scope: str = keys.EVERYTHING) -> int:
        """Remove settled agents of a scope that ended at least `older_than` seconds ago; returns how many (P10)."""
        settings.seconds("older_than", older_than, 0, 10 * 365 * 86400)
        removed, after = 0, "0"
        while after:
            count, after = await self.gateway(calls.purge(self.prefix, settings.milliseconds(older_than), scope, PURGE_BUDGET, after))
            removed += count
        return removed

    def scope(self, name: str) -> Scope:
        """A block whose agents carry the scope; leaving it by an error interrupts them."""
        return Scope(self, name)

    def latch(self, scope: str = keys.EVERYTHING) -> Latch:
        """A latch that interrupts the scope when the signal it was last given fires (I1 to I8)."""
        return Latch(self, scope)


def _whoami() -> str:
    user = "unknown"
    with suppress(OSError, KeyError):
        user = getpass.getuser()
    return f"{user}@{socket.gethostname()}"
