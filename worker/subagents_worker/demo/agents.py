"""The demo's agents: a parent that spawns one agent for each source file, and a last one that writes the summary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel

from subagents import SpawnRequest
from subagents_worker import AgentContext, agent
from subagents_worker.demo.measure import FileMeasures, default_directory, find_sources, measure_file
from subagents_worker.demo.summary import summarise
from subagents_worker.demo.table import render


class Account(BaseModel):
    """What the demo comes to: how many files, the summary as data, and as a table for people."""

    files: int
    summary: dict[str, Any]
    table: str


@agent("measure_tree", timeout=600)
async def measure_tree(ctx: AgentContext, directory: str | None = None, files: int | None = None) -> Account:
    """Measure every source file below a directory (the standard library's own, if none is named), one agent each."""
    sources = find_sources(Path(directory) if directory else default_directory(), files)
    await ctx.emit("found", files=len(sources))
    children = await ctx.spawn_many(
        [SpawnRequest(type="measure_file", input={"path": str(path)}, description=path.name) for path in sources]
    )
    await ctx.wait_all(children)
    last = await ctx.spawn("summarise_measures", {"agents": [child.id for child in children]}, description="the summary")
    return Account.model_validate(await last.result())


@agent("measure_file", timeout=120)
async def measure_one_file(ctx: AgentContext, path: str) -> FileMeasures:
    """Measure one source file."""
    return measure_file(Path(path))


@agent("summarise_measures", timeout=120)
async def summarise_measures(ctx: AgentContext, agents: list[str]) -> Account:
    """Add up what the others have measured."""
    records = [await ctx.pool.settled(agent_id) for agent_id in agents]
    measures = [FileMeasures.model_validate(record.result) for record in records if record.result is not None]
    summary = summarise(measures)
    return Account(files=len(measures), summary=summary.model_dump(mode="json"), table=render(summary))
