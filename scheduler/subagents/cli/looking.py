"""`ps` and `show`: what is there, and everything about one of it."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text

from subagents import settings
from subagents.cli.agent_view import agent_facts, agent_table, pool_line
from subagents.cli.connection import connected
from subagents.cli.errors import ExitCode
from subagents.cli.options import Target, command
from subagents.cli.output import counted, note, show, show_json
from subagents.models import AgentRecord, PoolStats
from subagents.pool import Pool
from subagents.statuses import Status

PAGE = 1000
MOST = 100_000


@command
async def ps(
    target: Target,
    status: Annotated[str | None, typer.Option("--status", metavar="STATUS", help=f"One of {', '.join(Status)}.")] = None,
    type: Annotated[str | None, typer.Option("--type", metavar="TYPE", help="Agents of this type.")] = None,
    scope: Annotated[str | None, typer.Option("--scope", metavar="S", help="Agents that carry this scope.")] = None,
    tree: Annotated[str | None, typer.Option("--tree", metavar="ID", help="This agent and its descendants.")] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", help="So many at most.")] = 50,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Settled agents too.")] = False,
) -> ExitCode:
    """List the agents that are not settled, newest first."""
    settings.whole_number("--limit", limit, 1, MOST)
    filters = {"type": type, "scope": scope, "tree": tree}
    async with connected(target) as pool:
        stats = await pool.stats()
        if status is not None or everything:
            records = await _pages(pool, limit, status=status, **filters)
        else:
            records = await _unsettled(pool, stats, limit, **filters)
    if target.json:
        show_json({"pool": target.pool, "stats": stats, "agents": records})
        return ExitCode.DONE
    show(pool_line(target.pool, stats))
    if records:
        show(Text())
        show(agent_table(records))
    elif any((status, type, scope, tree)):
        note("no agent fits")
    elif not everything:
        note("every agent has settled; --all shows them")
    if len(records) == limit:
        note(f"only the newest {counted(limit, 'agent is', 'agents are')} shown; --limit shows more")
    return ExitCode.DONE


async def _unsettled(pool: Pool, stats: PoolStats, limit: int, **filters: Any) -> list[AgentRecord]:
    """Those on workers first, then as much of the queue as fits; a status that nobody has costs no call."""
    records: dict[str, AgentRecord] = {}
    for status, there in (
        (Status.STOPPING, stats.stopping),
        (Status.RUNNING, stats.active + stats.bypass),
        (Status.WAITING, stats.waiting),
        (Status.QUEUED, stats.active + stats.queued + stats.unserved),
    ):
        if there and len(records) < limit:
            records |= {record.id: record for record in await _pages(pool, limit - len(records), status=status, **filters)}
    return sorted(records.values(), key=lambda record: -record.seq)


async def _pages(pool: Pool, limit: int, **filters: Any) -> list[AgentRecord]:
    records: list[AgentRecord] = []
    cursor: str | None = None
    while True:
        page = await pool.list(**filters, limit=min(limit - len(records), PAGE), cursor=cursor)
        records += page
        cursor = page.cursor
        if cursor is None or len(records) >= limit:
            return records


@command
async def show_agent(target: Target, id: Annotated[str, typer.Argument(metavar="ID", help="The agent.")]) -> ExitCode:
    """Show everything the pool knows of one agent."""
    async with connected(target) as pool:
        record = await pool.get(id)
    if target.json:
        show_json(record)
    else:
        show(agent_facts(record))
    return ExitCode.DONE
