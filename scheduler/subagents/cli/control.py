"""`abort`, `interrupt`, `halt`, `pause`, `limit` and their opposites: staying in control of what runs."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer
from rich.text import Text

from subagents.cli.connection import connected
from subagents.cli.errors import ExitCode, plain
from subagents.cli.options import Target, command
from subagents.cli.output import note, notes, show, show_json, watched
from subagents.cli.report_view import show_report
from subagents.errors import UnknownAgent
from subagents.handle import AbortAnswer
from subagents.keys import EVERYTHING
from subagents.settings import max_concurrent

Reason = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why; it is kept in the history.")]
WaitSeconds = Annotated[float, typer.Option("--wait", metavar="SECONDS", help="How long to wait for the account to be complete.")]
Force = Annotated[bool, typer.Option("--force", help="Also agents that were spawned to survive interrupts.")]

ABORTS = {
    AbortAnswer.STOPPED: "stopped",
    AbortAnswer.STOPPING: "stopping: it was told to, and holds its permit until it is out",
    AbortAnswer.ALREADY_TERMINAL: "had settled before; nothing was changed",
}


@command
async def abort(target: Target, id: Annotated[str, typer.Argument(metavar="ID", help="The agent.")], reason: Reason = None) -> ExitCode:
    """Stop one agent and its descendants."""
    async with connected(target) as pool:
        answer = await pool.abort(id, reason)
    if answer is AbortAnswer.UNKNOWN:
        raise UnknownAgent(id)
    _say(target, {"id": id, "answer": answer}, f"{plain(id)} {ABORTS[answer]}")
    return ExitCode.DONE


@command
async def interrupt(
    target: Target,
    scope: Annotated[str, typer.Option("--scope", metavar="S", help="The scope; without it everyone.")] = EVERYTHING,
    reason: Reason = None,
    wait: WaitSeconds = 5.0,
    force: Force = False,
    kill: Annotated[bool, typer.Option("--kill", help="End processes whose agents do not respond, even if others run in them.")] = False,
) -> ExitCode:
    """Stop everything spawned so far, and print the account.

    It reaches running and queued agents, on every worker, of one scope or of everyone; what is spawned afterwards runs.
    Exit code 0: everyone is out. 4: not within --wait seconds.
    """
    async with connected(target) as pool:
        if target.json or not watched():
            report = await pool.interrupt(scope, reason=reason, wait=wait, force=force, kill=kill)
        else:
            with notes().status("waiting for the account"):
                report = await pool.interrupt(scope, reason=reason, wait=wait, force=force, kill=kill)
    return show_report(report, as_json=target.json)


@command
async def halt(target: Target, reason: Reason = None, wait: WaitSeconds = 5.0, force: Force = False) -> ExitCode:
    """Interrupt everyone, and start nothing until `unhalt`.

    Spawns are refused meanwhile. Exit code 0: everyone is out. 4: not within --wait seconds.
    """
    async with connected(target) as pool:
        report = await pool.halt(reason=reason, wait=wait, force=force)
    code = show_report(report, as_json=target.json)
    if not target.json:
        note("halted: nothing starts and spawns are refused until `subagents unhalt`")
    return code


@command
async def unhalt(target: Target, reason: Reason = None) -> ExitCode:
    """Undo `halt`; a pause stays."""
    async with connected(target) as pool:
        await pool.unhalt(reason=reason)
        paused = (await pool.stats()).paused
    _say(target, {"halted": False, "paused": paused}, f"{target.pool} is not halted" + (", but still paused" if paused else ""))
    return ExitCode.DONE


@command
async def pause(target: Target, reason: Reason = None) -> ExitCode:
    """Admit nothing more; what runs goes on."""
    async with connected(target) as pool:
        await pool.pause(reason=reason)
    _say(target, {"paused": True}, f"{target.pool} is paused: what runs goes on, nothing more is admitted until `subagents unpause`")
    return ExitCode.DONE


@command
async def unpause(target: Target, reason: Reason = None) -> ExitCode:
    """Undo `pause`."""
    async with connected(target) as pool:
        await pool.unpause(reason=reason)
        halted = (await pool.stats()).halted
    _say(target, {"paused": False, "halted": halted}, f"{target.pool} is not paused" + (", but still halted" if halted else ""))
    return ExitCode.DONE


@command
async def limit(
    target: Target,
    number: Annotated[str | None, typer.Argument(metavar="N", help="The new limit: 0 to 1 000 000; 0 holds everything.")] = None,
) -> ExitCode:
    """Print how many agents may run at once, or change it live."""
    new = None if number is None else max_concurrent(int(number) if re.fullmatch(r"-?[0-9]{1,18}", number) else number)
    async with connected(target) as pool:
        if new is None:
            current = (await pool.stats()).max_concurrent
            _say(target, {"max_concurrent": current}, str(current))
        else:
            before = await pool.set_max_concurrent(new)
            _say(target, {"before": before, "max_concurrent": new}, f"{before} → {new}")
    return ExitCode.DONE


def _say(target: Target, facts: dict[str, Any], words: str) -> None:
    if target.json:
        show_json(facts)
    else:
        show(Text(words))
