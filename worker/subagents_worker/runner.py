"""One run, from its claim to its settlement."""

from __future__ import annotations

import asyncio
import logging
import math
import time

from subagents.errors import InvalidInput
from subagents.lineage import Running, running_agent
from subagents.pool import Pool
from subagents.scripts.calls import Spec
from subagents.scripts.replies import Code, Reply
from subagents_worker.context import AgentContext
from subagents_worker.registry import AgentType, Registry
from subagents_worker.runs import Run, Runs
from subagents_worker.settlement import AgentExit, Cause, Ending, decide
from subagents_worker.settler import Settler
from subagents_worker.trust import Trust

log = logging.getLogger(__name__)


class Runner:
    """Runs agents in the event loop of this process and reports how each ended."""

    def __init__(self, pool: Pool, registry: Registry, runs: Runs, trust: Trust, settler: Settler, grace: float) -> None:
        self._pool, self._registry, self._runs, self._trust, self._settler = pool, registry, runs, trust, settler
        self._grace = grace

    def __repr__(self) -> str:
        return f"<Runner of {self._registry!r}>"

    def begin(self, spec: Spec, sent_at: float) -> asyncio.Task[None]:
        """Run one agent that this worker has started, under a lease asked for at `sent_at`; the task ends when it has settled.

        All that a stop needs to reach the agent is in place when this returns, before a line of its code has run (A3).
        """
        run = Run(spec, self._grace)
        self._trust.begin(run, sent_at)
        type = self._registry[spec.type]
        run.task = asyncio.create_task(self._body(run, type), name=f"agent-{spec.id}")
        self._runs.add(run)
        return asyncio.create_task(self._follow(run, run.task, type), name=f"run-{spec.id}")

    async def _follow(self, run: Run, task: asyncio.Task[object], type: AgentType) -> None:
        await self._until_out(run, task, type)
        run.code_runs = False
        self._trust.end(run)
        if task.cancelled():
            ending = Ending(run.cause, failure=asyncio.CancelledError())
        elif (failure := task.exception()) is not None:
            ending = Ending(run.cause, failure=failure)
        else:
            ending = Ending(run.cause, value=task.result())
        await self._settle(run, ending)

    async def _until_out(self, run: Run, task: asyncio.Task[object], type: AgentType) -> None:
        """Wait until the agent's code is out; its time-outs count from here (P14)."""
        spec = run.spec
        timeout = spec.timeout if spec.timeout is not None else type.timeout
        stall = spec.stall_timeout if spec.stall_timeout is not None else type.stall_timeout
        started = time.monotonic()
        while not task.done():
            due: list[tuple[float, Cause]] = []
            if timeout is not None:
                due.append((started + timeout, Cause.TIMEOUT))
            if stall is not None and not run.lent:  # a parent that waits for its child does not stall
                due.append((run.last_sign + stall, Cause.STALLED))
            soonest, cause = min(due, default=(math.inf, Cause.TIMEOUT))
            if run.cause is not None or soonest == math.inf:
                await asyncio.wait({task}, timeout=None if run.cause is not None or stall is None else stall)
            elif soonest > time.monotonic():
                await asyncio.wait({task}, timeout=soonest - time.monotonic())
            else:
                run.stop(cause)

    async def _body(self, run: Run, type: AgentType) -> object:
        """The agent's own task."""
        context = AgentContext(self._pool, run, self._runs)
        task = asyncio.current_task()
        assert task is not None
        context.bind(task)
        running_agent.set(Running(self._pool.prefix, run.spec.id, run.spec.token, context.child))
        arguments = type.arguments(run.spec.input)
        try:
            positional = (context,) if type.takes_context else ()
            return type.checked_output(await type.function(*positional, **arguments))
        except (KeyboardInterrupt, SystemExit) as exit:
            raise AgentExit(f"its code raised {exit!r}") from exit
        except InvalidInput as own:  # of a spawn inside the agent, say: not a word about this agent's input
            raise RuntimeError(str(own)) from own

    async def _settle(self, run: Run, ending: Ending) -> None:
        try:
            settlement = decide(run.spec, ending)
            if settlement is None:
                log.warning("agent %s lost its lease and was cut off; what it was doing is not recorded", run.spec.id)
                return
            reply = await self._settler.settle(settlement)
            _note(run.spec, reply)
        finally:
            self._runs.remove(run)


def _note(spec: Spec, reply: Reply) -> None:
    if reply.code not in (Code.SETTLED, Code.QUEUED):
        log.warning("the end of agent %s came too late: %s %s", spec.id, reply.code, reply.text(0))
