"""Agents as people see them: a table of many, everything of one, a line on how one stands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.table import Table
from rich.text import Text

from subagents.cli.errors import plain
from subagents.cli.output import STYLES, clock, counted, duration, elapsed, pretty_json
from subagents.models import AgentRecord, PoolStats
from subagents.statuses import Status

REASONS = {"permit": "", "worker": "goes to a worker", "no_worker": "no worker", "limit": "limit is 0"}
"""Why an agent waits, where the stored word is not the best one; waiting for a permit is what a queue is for."""


def pool_line(name: str, stats: PoolStats) -> Text:
    """The pool in one line."""
    text = Text.assemble((plain(name), "bold"), f" · limit {stats.max_concurrent:,} · {stats.active:,} active · {stats.queued:,} queued")
    for count, word in ((stats.unserved, "unserved"), (stats.waiting, "waiting"), (stats.bypass, "bypass"), (stats.stopping, "stopping")):
        if count:
            text.append(f" · {count:,} {word}")
    text.append(f" · {counted(stats.workers, 'worker')}")
    if stats.oldest_wait_s is not None:
        text.append(f" · oldest waits {duration(stats.oldest_wait_s)}")
    if stats.halted:
        text.append(" · HALTED", "bold red")
    if stats.paused:
        text.append(" · PAUSED", "bold yellow")
    return text


def agent_table(records: Sequence[AgentRecord]) -> Table:
    """A row for each agent; columns that would be empty are left out."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_edge=False)
    table.add_column("ID", no_wrap=True, min_width=max((len(record.id) for record in records), default=2))
    table.add_column("TYPE", no_wrap=True, overflow="ellipsis", min_width=_room((record.type for record in records), 16))
    table.add_column("STATUS", no_wrap=True, overflow="ellipsis", min_width=_room((status_of(record).plain for record in records), 24))
    scoped = any(record.scopes for record in records)
    worked = any(record.worker for record in records)
    if scoped:
        table.add_column("SCOPES", no_wrap=True, overflow="ellipsis")
    table.add_column("AGE", no_wrap=True, justify="right", min_width=5)
    table.add_column("RUN", no_wrap=True, justify="right", min_width=5)
    if worked:
        table.add_column("WORKER", no_wrap=True, overflow="ellipsis")
    for record in records:
        cells = [Text(record.id), Text(plain(record.type)), status_of(record)]
        cells += [Text(plain(",".join(record.scopes)))] if scoped else []
        cells += [Text(elapsed(record.enqueued_at)), Text(run_time(record))]
        cells += [Text(plain(record.worker or ""))] if worked else []
        table.add_row(*cells)
    return table


def _room(texts: Iterable[str], most: int) -> int:
    """What a column keeps where the terminal is narrow; scopes and workers give way first."""
    return min(max(map(len, texts), default=6), most)


def status_of(record: AgentRecord) -> Text:
    """The status, with the place in line and why it waits, or why it failed."""
    text = Text(record.status.value, STYLES[record.status])
    if record.queue_position is not None:
        text.append(f" #{record.queue_position:,}")
    why = record.error_kind.value if record.error_kind else _why_waiting(record)
    if why:
        text.append(f" ({why})")
    return text


def standing(record: AgentRecord) -> str:
    """How an agent stands, as a line for the person who waits for it."""
    line = f"{record.type} {record.id}: {status_of(record).plain}"
    if record.settled:
        took = f" after {elapsed(record.started_at, record.ended_at)}" if record.started_at else ", never started"
        return f"{line}{took}"
    since = record.started_at or record.enqueued_at
    line += f", for {elapsed(since)}"
    if record.progress is not None:
        line += f", {_clipped(' '.join(pretty_json(record.progress).split()), 60)}"
    return line


def run_time(record: AgentRecord) -> str:
    """How long it has run, or ran."""
    return elapsed(record.started_at, record.ended_at) if record.started_at else ""


def agent_facts(record: AgentRecord) -> Table:
    """Everything a pool knows of one agent; what is not there is left out."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _facts(record):
        table.add_row(name, value if isinstance(value, Text) else Text(value))
    return table


def _facts(record: AgentRecord) -> Iterator[tuple[str, str | Text]]:
    yield "id", record.id
    yield "type", plain(record.type)
    yield "status", status_of(record)
    for name, value in (
        ("description", record.description),
        ("scopes", ", ".join(record.scopes)),
        ("parent", record.parent_id),
        ("worker", record.worker),
        ("error", record.error),
        ("stopped by", record.stopped_by),
        ("stop reason", record.stop_reason),
    ):
        if value:
            yield name, "\n".join(plain(line) for line in value.split("\n"))
    yield "order", f"seq {record.seq:,}, depth {record.depth}, run {record.run}, attempt {record.attempt}"
    yield from _times(record)
    if used := {name: value for name, value in record.usage.model_dump().items() if value}:
        yield "usage", ", ".join(f"{name} {value:,}" for name, value in used.items())
    if record.progress is not None:
        yield "progress", pretty_json(record.progress)
    if record.result is not None or record.status in (Status.COMPLETED, Status.STEERED):
        yield "result", pretty_json(record.result)


def _times(record: AgentRecord) -> Iterator[tuple[str, str]]:
    yield "enqueued", f"{record.enqueued_at.astimezone():%Y-%m-%d} {clock(record.enqueued_at)}"
    for name, at in (
        ("admitted", record.admitted_at),
        ("started", record.started_at),
        ("stop asked", record.stop_requested_at),
        ("ended", record.ended_at),
    ):
        if at:
            yield name, f"{at.astimezone():%Y-%m-%d} {clock(at)}, {elapsed(record.enqueued_at, at)} after it was enqueued"


def _why_waiting(record: AgentRecord) -> str:
    reason = record.waiting_reason or ""
    return REASONS.get(reason, reason)


def _clipped(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
