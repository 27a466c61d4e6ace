"""Interrupts, from the client's side: raise the cutoff, carry it into the records, and bring back the account."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

from subagents import keys
from subagents.errors import UnknownInterrupt
from subagents.models import InterruptedAgent, InterruptOutcome, InterruptReport
from subagents.models.record import moment
from subagents.scripts import calls
from subagents.scripts.gateway import Gateway
from subagents.waits import Waits

SWEEP_BUDGET = 100
READ_AGAIN_EVERY = 0.25
NOT_RESPONDING_AFTER_MS = 900
"""A polite agent is out within milliseconds; one that is still in after this long is named."""


class Interrupts:
    """Sends the interrupts of one pool and follows them."""

    def __init__(self, gateway: Gateway, prefix: str, waits: Waits) -> None:
        self._gateway, self._prefix, self._waits = gateway, prefix, waits

    def __repr__(self) -> str:
        return f"<Interrupts of {self._prefix}>"

    async def send(self, scope: str, *, reason: str | None, by: str, wait: float, force: bool, kill: bool) -> InterruptReport:
        """Interrupt a scope and return the account after at most `wait` seconds, earlier if everyone is out."""
        if scope != keys.EVERYTHING:
            keys.scope_name(scope)
        interrupt_id = keys.new_id()
        await self._gateway(calls.interrupt(self._prefix, interrupt_id, scope, force=force, kill=kill, reason=reason or "", by=by))
        return await self._follow(interrupt_id, wait)

    async def halt(self, *, reason: str | None, by: str, wait: float, force: bool) -> InterruptReport:
        """Close the latch, interrupt everyone, and return the account."""
        interrupt_id = keys.new_id()
        await self._gateway(calls.halt(self._prefix, interrupt_id, force=force, reason=reason or "", by=by))
        return await self._follow(interrupt_id, wait)

    async def report(self, interrupt_id: str) -> InterruptReport:
        """The account of an earlier interrupt, as it stands now."""
        if not keys.is_agent_id(interrupt_id):
            raise UnknownInterrupt(interrupt_id)
        return await self._read(interrupt_id)

    async def _read(self, interrupt_id: str, client: str = "") -> InterruptReport:
        """The whole account, in pages; what is said of the interrupt itself is what the last page says."""
        agents: dict[str, str] = {}
        cursor = "0"
        while True:
            report = await self._gateway(calls.report(self._prefix, interrupt_id, client, cursor))
            if report is None:
                raise UnknownInterrupt(interrupt_id)
            agents |= report.agents
            cursor = report.next
            if cursor == "0":
                return read_report(interrupt_id, replace(report, agents=agents))

    async def _follow(self, interrupt_id: str, wait: float) -> InterruptReport:
        deadline = time.monotonic() + wait
        while await self._gateway(calls.sweep(self._prefix, interrupt_id, SWEEP_BUDGET)):
            if time.monotonic() >= deadline:  # workers and schedulers carry the sweep on
                break
            await asyncio.sleep(0)

        async def read() -> InterruptReport:
            return await self._read(interrupt_id, self._waits.client)

        remaining = deadline - time.monotonic()
        if remaining <= 0:
            return await read()
        return await self._waits.until(interrupt_id, read, lambda report: report.complete, remaining, READ_AGAIN_EVERY)


def read_report(interrupt_id: str, report: calls.Report) -> InterruptReport:
    """The account in people's terms."""
    scope, cutoff, queued_stopped, at, reason, by, completed_at, _swept, _watchers = report.facts
    began = int(at)
    left = {agent_id: (lease, worker_lease) for agent_id, lease, worker_lease in report.left}
    agents: list[InterruptedAgent] = []
    for agent_id, value in report.agents.items():
        worker, _, ended = value.rpartition("|")
        if not ended:
            agents.append(_still_in(agent_id, worker, report, began, left.get(agent_id)))
        else:
            elapsed = max(int(ended) - began, 0)
            agents.append(InterruptedAgent(id=agent_id, worker=worker or None, outcome=InterruptOutcome.STOPPED, elapsed_ms=elapsed))
    return InterruptReport(
        interrupt_id=interrupt_id,
        scope=scope,
        cutoff=int(cutoff),
        queued_stopped=max(int(queued_stopped), 0),
        complete=report.complete,
        agents=tuple(agents),
        reason=reason or None,
        by=by or None,
        at=moment(at),
        elapsed_ms=max(int(completed_at or report.wall) - began, 0),
    )


def _still_in(agent_id: str, worker: str, report: calls.Report, began: int, leases: tuple[str, str] | None) -> InterruptedAgent:
    """An agent that is not out: its worker is silent, or it does not respond, or it is on its way.

    `leases` are the ends of its own lease and of its worker's; the script tells them for the first 1 000 agents only.
    """
    elapsed = max(report.wall - began, 0)
    lease_end, worker_lease_end = leases or ("", "")
    void = max(int(float(lease_end)) - report.now, 0) if lease_end else None
    silent = leases is not None and (not worker_lease_end or report.worker_is_silent(float(worker_lease_end)))
    if silent:
        outcome = InterruptOutcome.UNREACHABLE
    elif elapsed > NOT_RESPONDING_AFTER_MS:
        outcome = InterruptOutcome.NOT_RESPONDING
    else:
        outcome = InterruptOutcome.STOPPING
    return InterruptedAgent(id=agent_id, worker=worker or None, outcome=outcome, elapsed_ms=elapsed, lease_void_ms=void if silent else None)
