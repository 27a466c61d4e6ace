"""The demo while it runs, and what it comes to in the end."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from subagents.cli.agent_view import run_time
from subagents.cli.demo_progress import Progress
from subagents.cli.errors import plain
from subagents.cli.output import counted, duration
from subagents.models import AgentRecord
from subagents.statuses import Status

SHOWN = 8
COUNTED = (Status.RUNNING, Status.WAITING, Status.STOPPING, Status.QUEUED)


def frame(directory: str, progress: Progress, running: Sequence[AgentRecord], seconds: float) -> Group:
    """One picture of the run; it keeps its height, so that nothing jumps."""
    title = Text.assemble("Measuring ", (plain(directory), "bold"))
    bar = Table.grid(padding=(0, 2))
    bar.add_row(
        ProgressBar(total=max(progress.pieces, 1), completed=progress.pieces_done, width=36),
        Text(how_far(progress), no_wrap=True),
        Text(duration(seconds), "dim"),
    )
    agents = Table.grid(padding=(0, 2))
    agents.add_column(no_wrap=True)
    agents.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    agents.add_column(no_wrap=True, justify="right")
    for record in running[:SHOWN]:
        what = plain(record.description or record.id)
        agents.add_row(Text(plain(record.type), "green"), Text(what), Text(run_time(record), "dim"))
    for _ in range(max(min(progress.limit or 4, SHOWN) - len(running), 0)):
        agents.add_row("", "", "")
    return Group(title, bar, Text(counts(progress)), Text(), agents)


def how_far(progress: Progress) -> str:
    """How much of the work is done."""
    return f"{progress.pieces_done:,} of {progress.pieces:,} files" if progress.pieces else "workers are starting"


def counts(progress: Progress) -> str:
    """Who runs, waits and is done, in a line."""
    parts = [f"{progress.count(status):,} {status}" for status in COUNTED if progress.count(status) or status is Status.RUNNING]
    return " · ".join([f"limit {' → '.join(map(str, progress.limits))}", *parts, f"{progress.settled:,} done"])


def plain_line(progress: Progress, seconds: float) -> str:
    """The same for a log."""
    return f"{seconds:5.1f} s  {how_far(progress)} · {counts(progress)}"


def closing_line(progress: Progress, seconds: float) -> Text:
    """What the run has shown."""
    limits = " → ".join(map(str, progress.limits))
    text = Text.assemble((counted(len(progress.types), "agent"), "bold"), f" in {duration(seconds)}, at most {progress.peak} at once ")
    text.append(*(f"(limit {limits}), ", "") if progress.within_limit else (f"ABOVE the limit of {limits}, ", "bold red"))
    return text.append(*("started in spawn order", "") if progress.in_order else ("NOT in spawn order", "bold red"))
