"""Waiting for one agent while a person watches, and saying how it ended."""

from __future__ import annotations

import asyncio

from rich.text import Text

from subagents.cli.agent_view import standing
from subagents.cli.errors import CommandFailed, ExitCode, Failure, failure_of, plain, report
from subagents.cli.output import note, notes, pretty_json, show, show_json, watched
from subagents.errors import AgentFailed, AgentStopped, WaitTimeout
from subagents.models import AgentRecord
from subagents.pool import Pool
from subagents.statuses import Status

LOOK_AGAIN_EVERY = 0.5


async def settled(pool: Pool, agent_id: str, timeout: float | None, *, quietly: bool) -> AgentRecord:
    """`pool.settled`, with a line on stderr that says meanwhile how the agent stands."""
    if quietly or not watched():
        return await pool.settled(agent_id, timeout)
    waiting = asyncio.ensure_future(pool.settled(agent_id, timeout))
    try:
        with notes().status("") as status:
            while not waiting.done():
                status.update(Text(plain(standing(await pool.get(agent_id)))))
                await asyncio.wait({waiting}, timeout=LOOK_AGAIN_EVERY)
        return await waiting
    finally:
        waiting.cancel()


def show_end(record: AgentRecord, timeout: float | None, *, as_json: bool) -> ExitCode:
    """Print the record, or its result with a note, and give the exit code: failed or stopped agents fail the command."""
    if as_json:
        show_json(record)
    failure = _failure(record, timeout)
    if failure is not None:
        report(failure, as_json=as_json)
        return ExitCode(failure.exit_code)
    if not as_json:
        note(standing(record))
        show(pretty_json(record.result))
    return ExitCode.DONE


def _failure(record: AgentRecord, timeout: float | None) -> Failure | None:
    if not record.settled:
        return failure_of(WaitTimeout(record, timeout or 0.0))
    if record.status is Status.STOPPED:
        return failure_of(AgentStopped(record))
    if record.status in (Status.ERROR, Status.ABORTED):
        text, traceback, _ = (record.error or "").partition("\n  File ")
        short = AgentFailed(record.model_copy(update={"error": text or None}))
        return Failure("agent_failed", f"{short}" + (f"; the traceback: subagents show {record.id}" if traceback else ""), ExitCode.FAILED)
    return None


def not_negative(name: str, seconds: float | None) -> None:
    """Refuse a time that nobody can wait."""
    if seconds is not None and not seconds >= 0:
        raise CommandFailed("usage", f"{name} must be a number of seconds, 0 or more, not {seconds:g}", ExitCode.USAGE)
