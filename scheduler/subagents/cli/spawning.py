"""`spawn`, `wait` and `tail`: start an agent, and follow it to its end."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Annotated

import typer
from rich.text import Text

from subagents import keys
from subagents.cli.agent_view import standing
from subagents.cli.connection import connected
from subagents.cli.errors import ExitCode, plain
from subagents.cli.input_value import read_input
from subagents.cli.options import Target, command
from subagents.cli.output import clock, compact_json, note, show, show_json
from subagents.cli.report_view import show_report
from subagents.cli.waiting import not_negative, settled, show_end
from subagents.errors import InvalidArgument
from subagents.models import AgentEvent, AgentRecord, PoolEvent, SpawnRequest
from subagents.pool import Pool
from subagents.scripts import streams

STOP_WITHIN = 5.0
"""Seconds for which a Ctrl-C waits for the account of what it stopped."""

INWARD = frozenset({"token", "set", "number"})
"""Facts of events that say nothing to people; `--json` has them."""

KIND_STYLES = {
    "completed": "green",
    "error": "red",
    "aborted": "red",
    "stopped": "yellow",
    "stopping": "yellow",
    "interrupt": "bold yellow",
    "halted": "bold red",
    "limit": "bold",
    "lost": "red",
    "corrupt": "bold red",
}


@command
async def spawn(
    target: Target,
    type: Annotated[str, typer.Argument(metavar="TYPE", help="The agent type, as a worker offers it.")],
    input: Annotated[str | None, typer.Argument(metavar="JSON", help="Its input: JSON, @FILE, or - for stdin.")] = None,
    scope: Annotated[list[str] | None, typer.Option("--scope", metavar="S", help="A name that interrupts may aim at; repeatable.")] = None,
    key: Annotated[str | None, typer.Option("--key", help="The same key again gives the same agent instead of a new one.")] = None,
    description: Annotated[str | None, typer.Option("--description", help="A line for people.")] = None,
    timeout: Annotated[float | None, typer.Option("--timeout", metavar="SECONDS", help="How long it may run.")] = None,
    retries: Annotated[int, typer.Option("--retries", metavar="N", help="Further attempts if its worker is lost.")] = 0,
    survive: Annotated[bool, typer.Option("--survive", help="Only forced interrupts stop it.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait and print the result; Ctrl-C stops the agent.")] = False,
    wait_timeout: Annotated[
        float | None, typer.Option("--wait-timeout", metavar="SECONDS", help="Wait so long at most (exit 4); the agent goes on.")
    ] = None,
) -> ExitCode:
    """Spawn an agent and print its id, or wait for its result.

    With --wait, exit code 0: it completed. 1: it failed or was stopped. 4: --wait-timeout is over.
    """
    not_negative("--wait-timeout", wait_timeout)
    following = wait or wait_timeout is not None
    # A keyed agent may be an earlier call's: a scope made up here would read as another payload, and is refused.
    own_scope = f"cli-{keys.new_id()}" if following and key is None else None
    scopes = [keys.scope_name(name) for name in scope or ()]
    request = SpawnRequest.of(
        type=type,
        input=read_input(input),
        scopes=(*scopes, own_scope) if own_scope else tuple(scopes),
        key=key,
        description=description,
        timeout=timeout,
        retries=retries,
        on_interrupt="survive" if survive else "stop",
    )
    async with connected(target, create=True) as pool:
        if following:
            return await _spawn_and_wait(pool, request, own_scope, wait_timeout, target)
        [handle] = await pool.spawn_many([request])
        record = await handle.get()
        if target.json:
            show_json(record)
        else:
            show(handle.id)
            _advise(record, target)
    return ExitCode.DONE


async def _spawn_and_wait(pool: Pool, request: SpawnRequest, own_scope: str | None, timeout: float | None, target: Target) -> ExitCode:
    agent_id: str | None = None
    try:
        [handle] = await pool.spawn_many([request])
        agent_id = handle.id
        if not target.json:
            note(agent_id)
            _advise(await handle.get(), target)
        return show_end(await settled(pool, agent_id, timeout, quietly=target.json), timeout, as_json=target.json)
    except asyncio.CancelledError:  # Ctrl-C
        if (task := asyncio.current_task()) is not None:
            task.uncancel()
        if own_scope is not None:
            show_report(await pool.interrupt(own_scope, reason="Ctrl-C", wait=STOP_WITHIN, force=True), as_json=target.json)
        elif agent_id is not None:
            await pool.abort(agent_id, "Ctrl-C")
            show_end(await pool.settled(agent_id, STOP_WITHIN), STOP_WITHIN, as_json=target.json)
        return ExitCode.INTERRUPTED


def _advise(record: AgentRecord, target: Target) -> None:
    """Say what keeps a new agent from running, if anything but its place in line does."""
    if record.waiting_reason == "no_worker":
        note(f"no worker serves {record.type!r} now; it starts when one does: subagents worker MODULE --pool {target.pool}")
    elif record.waiting_reason in ("paused", "limit"):
        note(f"{standing(record)}: `subagents {'unpause' if record.waiting_reason == 'paused' else 'limit N'}` lets it go on")


@command
async def wait(
    target: Target,
    id: Annotated[str, typer.Argument(metavar="ID", help="The agent.")],
    timeout: Annotated[float | None, typer.Option("--timeout", metavar="SECONDS", help="Wait so long at most (exit 4).")] = None,
) -> ExitCode:
    """Wait until an agent has settled and print its result.

    Neither a time-out nor Ctrl-C touches the agent. Exit code 0: it completed. 1: it failed or was stopped. 4: --timeout is over.
    """
    not_negative("--timeout", timeout)
    async with connected(target) as pool:
        try:
            return show_end(await settled(pool, id, timeout, quietly=target.json), timeout, as_json=target.json)
        except asyncio.CancelledError:
            note(f"no longer waiting; agent {id} goes on")
            raise


@command
async def tail(
    target: Target,
    id: Annotated[str | None, typer.Argument(metavar="ID", help="An agent; without one, the whole pool.")] = None,
    start: Annotated[str | None, typer.Option("--from", metavar="CURSOR", help="Begin after this event; 0 is the oldest kept.")] = None,
    follow: Annotated[bool, typer.Option("--follow/--no-follow", help="Go on with what happens next.")] = True,
) -> ExitCode:
    """Follow what happens, or what one agent says.

    Without --from a pool is followed from now on, or listed from the oldest event; an agent from its first.
    """
    if start is not None and not re.fullmatch(r"\d{1,20}(-\d{1,20})?", start):
        raise InvalidArgument(f"cursor {start!r} is refused: expected the cursor of an event (`tail --json` shows it), or 0 for the oldest")
    async with connected(target) as pool:
        cursor = start
        try:
            async for event in _events(pool, id, start, follow):
                cursor = event.cursor
                if target.json:
                    show_json(event)
                else:
                    show(_line(event), cut=True)
        except asyncio.CancelledError:
            if cursor is not None and not target.json:
                note(f"to go on from here: --from {cursor}")
            raise
    return ExitCode.DONE


async def _events(pool: Pool, agent_id: str | None, start: str | None, follow: bool) -> AsyncIterator[PoolEvent | AgentEvent]:
    if agent_id is None:
        async for event in pool.events(start or (None if follow else "0"), follow=follow):
            yield event
        return
    await pool.get(agent_id)
    after = start or "0"
    newest = "" if follow else await streams.newest(pool.gateway, f"{pool.prefix}events:{agent_id}")
    if not follow and _order(newest) <= _order(after):
        return
    async for said in pool.agent_events(agent_id, after):
        yield said
        if said.cursor == newest:
            return


def _order(cursor: str) -> tuple[int, int]:
    at, _, number = cursor.partition("-")
    return int(at), int(number or 0)


def _line(event: PoolEvent | AgentEvent) -> Text:
    text = Text.assemble((clock(event.at), "dim"), "  ", (f"{plain(event.kind):<12}", KIND_STYLES.get(event.kind, "")))
    if isinstance(event, AgentEvent):
        return text.append("" if event.data is None else compact_json(event.data))
    if event.agent_id:
        text.append(f"  {event.agent_id}  #{event.seq:<6}")
    if event.max_concurrent is not None:
        text.append(f"  {event.active}/{event.max_concurrent} active")
    facts = "  ".join(f"{name}={value}" for name, value in event.facts.items() if value not in ("", "0") and name not in INWARD)
    return text.append(f"  {plain(facts)}", "dim")
