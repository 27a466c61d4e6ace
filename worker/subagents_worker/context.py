"""What an agent's code is given: its identity, a voice, children, and the word to stop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic_core import to_json

from subagents.errors import CallerError
from subagents.handle import AgentHandle
from subagents.models import AgentRecord, SpawnRequest
from subagents.scripts import calls
from subagents.scripts.replies import Code
from subagents_worker.runs import Run, Runs
from subagents_worker.settlement import Cause

if TYPE_CHECKING:
    from subagents.pool import Pool

T = TypeVar("T")
ASK_AGAIN_EVERY = 0.5


class ChildHandle(AgentHandle):
    """A handle on a child. Waiting for it lends the parent's permit and worker slot; both are back before the parent's code goes on."""

    __slots__ = ("_context",)

    def __init__(self, context: AgentContext, pool: Pool, agent_id: str) -> None:
        super().__init__(pool, agent_id)
        self._context = context

    async def wait(self, timeout: float | None = None) -> AgentRecord:
        """As `AgentHandle.wait`, with the permit lent meanwhile (N1); `timeout` bounds the wait for the child, not the permit's return."""
        async with self._context.lent():
            return await super().wait(timeout)


class AgentContext:
    """One run of one agent, seen from inside.

    `stopping` turns true when the agent was told to end (stop, time-out, shutdown); its code is cancelled right after.
    """

    def __init__(self, pool: Pool, run: Run, runs: Runs) -> None:
        self.pool = pool
        self._run, self._runs = run, runs
        self._started = time.monotonic()
        self._voice = asyncio.Lock()
        self._main_task: asyncio.Task[object] | None = None

    def __repr__(self) -> str:
        return f"AgentContext({self.id!r}, type={self.type!r})"

    @property
    def id(self) -> str:
        """The agent's id."""
        return self._run.spec.id

    @property
    def type(self) -> str:
        """The agent's type."""
        return self._run.spec.type

    @property
    def token(self) -> str:
        """The fencing token of this start: pass it to whatever must refuse a late writer."""
        return self._run.spec.token

    @property
    def scopes(self) -> tuple[str, ...]:
        """The scopes that the agent carries."""
        return self._run.spec.scopes

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self._run.spec.attempt

    @property
    def depth(self) -> int:
        """How deep it is nested; 0 for an agent that a service spawned."""
        return self._run.spec.depth

    @property
    def deadline(self) -> float | None:
        """When its timeout is over, on `time.monotonic`'s clock; None without one."""
        timeout = self._run.spec.timeout
        return None if timeout is None else self._started + timeout

    @property
    def stopping(self) -> bool:
        """True once the agent was told to end."""
        return self._run.stopping.is_set()

    async def emit(self, kind: str, **data: Any) -> None:
        """Say something: kept in the agent's own event stream (the newest 1 000), the newest also as `progress` on its record."""
        self._run.last_sign = time.monotonic()
        encoded = to_json(data, inf_nan_mode="constants", fallback=str).decode()
        async with self._voice:
            await self.pool.gateway(calls.emit(self.pool.prefix, self.id, self.token, [(kind, encoded)]))

    async def log(self, text: str) -> None:
        """Say a line of text."""
        await self.emit("log", text=text)

    async def spawn(self, type: str, input: Any = None, **options: Any) -> ChildHandle:
        """Spawn a child: it inherits the scopes, and is stopped with its parent (N2, N4). Options as in `pool.spawn`."""
        self._run.last_sign = time.monotonic()
        return self.child(self.pool, (await self.pool.spawn(type, input, **options)).id)

    async def spawn_many(self, requests: Sequence[SpawnRequest]) -> list[ChildHandle]:
        """Spawn several children, in order, in as few round trips as they fit in."""
        self._run.last_sign = time.monotonic()
        return [self.child(self.pool, handle.id) for handle in await self.pool.spawn_many(requests)]

    def child(self, pool: Pool, agent_id: str) -> ChildHandle:
        """The handle on a child; `pool.spawn` inside this agent's code makes it too (N2)."""
        return ChildHandle(self, pool, agent_id)

    async def wait_all(self, handles: Sequence[AgentHandle], timeout: float | None = None) -> list[AgentRecord]:
        """Wait for several children at once, lending the permit one time; their records in the same order."""
        async with self.lent():
            return list(await asyncio.gather(*(self.pool.settled(handle.id, timeout) for handle in handles)))

    @asynccontextmanager
    async def lent(self) -> AsyncGenerator[None]:
        """Give back the permit and the worker slot for the time of the block; both are there again when it is left (N1)."""
        if asyncio.current_task() is not self._main_task:
            raise CallerError("only an agent's own main task may wait for a child: await the handle there, or use ctx.wait_all(handles)")
        self._run.resumed.clear()
        try:
            if await self._to_the_end(self._lend) is Code.WAITING:
                self._runs.lend(self._run, True)
            yield
        finally:
            try:
                if self._run.cause is None:
                    await self._to_the_end(self._take_back)
            finally:
                self._runs.lend(self._run, False)

    async def _to_the_end(self, step: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Lending and taking back are never left half done: a cancellation (a time-out of the agent's own, say) is raised when the step
        is through, so that its code never goes on without its permit. Only a run that is told to end goes at once."""
        doing, cancelled = asyncio.ensure_future(step()), None
        while not doing.done():
            try:
                await asyncio.wait({doing})
            except asyncio.CancelledError as cancellation:
                cancelled = cancellation
                if self._run.cause is not None:
                    doing.cancel()
                    break
        if cancelled is not None:
            raise cancelled
        return doing.result()

    async def _lend(self) -> Code:
        return await self._obey(await self.pool.gateway(calls.lend(self.pool.prefix, self.id, self.token)))

    async def _take_back(self) -> None:
        while True:
            self._run.resumed.clear()
            code = await self._obey(await self.pool.gateway(calls.take_back(self.pool.prefix, self.id, self.token)))
            if code is Code.RUNNING:
                self._run.last_sign = time.monotonic()
                return
            try:
                async with asyncio.timeout(ASK_AGAIN_EVERY):
                    await self._run.resumed.wait()
            except TimeoutError:
                continue

    async def _obey(self, code: Code) -> Code:
        """Go on, or end here if the pool says that this run is to stop or is no longer ours."""
        if code in (Code.STOP, Code.STALE):
            self._run.stop(Cause.STOP if code is Code.STOP else Cause.LEASE_LOST)
            await asyncio.Event().wait()  # the cancellation that `stop` asked for arrives here
        return code

    def bind(self, task: asyncio.Task[object]) -> None:
        """Tell the context which task is the agent's own; called by the runner."""
        self._main_task = task
