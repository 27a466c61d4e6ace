"""`demo`: a real job on real input. One agent per Python source file, under a limit, on a server of its own."""

from __future__ import annotations

import asyncio
import sysconfig
import tempfile
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Annotated, Any, cast

import typer
from rich.live import Live

from subagents import keys
from subagents.cli.connection import connected
from subagents.cli.demo_progress import LimitChange, Progress, read_limits
from subagents.cli.demo_view import closing_line, frame, plain_line
from subagents.cli.errors import CommandFailed, ExitCode
from subagents.cli.options import Target, command
from subagents.cli.output import note, notes, show, show_json, watched
from subagents.cli.private_server import server_for
from subagents.cli.report_view import show_report
from subagents.cli.waiting import show_end
from subagents.cli.workers import Workers, worker_command, worker_environment
from subagents.errors import InvalidArgument
from subagents.handle import AgentHandle
from subagents.models import AgentRecord
from subagents.pool import Pool
from subagents.scripts import streams
from subagents.settings import whole_number

AGENTS = "subagents_worker.demo.agents"
PARENT, PIECE = "measure_tree", "measure_file"
LIMIT = 4
WORKERS = {"processes": 2, "slots": 4}
FRAME_EVERY, LINE_EVERY = 0.2, 1.0
STOP_WITHIN = 5.0


@command
async def demo(
    target: Target,
    directory: Annotated[
        Path | None, typer.Argument(metavar="DIRECTORY", help="Whose Python files are measured; without it this Python's own library.")
    ] = None,
    files: Annotated[int | None, typer.Option("--files", metavar="N", help="The first N files only.")] = None,
    limit: Annotated[
        str | None,
        typer.Option(
            "--limit", metavar="N[,N…]", help="Change the limit (4) on the way: 8, or 2,8 spread over the run, or 2@3,8@6 by seconds."
        ),
    ] = None,
    redis: Annotated[str | None, typer.Option("--redis", metavar="URL", help="A server to run on; without it a private one.")] = None,
    pool: Annotated[str, typer.Option("--pool", metavar="NAME", help="The pool to run in.")] = "demo",
) -> ExitCode:
    """Measure Python files, an agent each; needs no Redis.

    A parent agent spawns one agent for each file, under a limit of 4, waits for them, and has a last one write the summary. A few
    hundred files take some seconds. Ctrl-C interrupts the demo's own agents and prints the account.
    """
    changes = read_limits(limit)
    if files is not None:
        whole_number("--files", files, 1, 100_000)
    source = _directory(directory)
    argv = worker_command([AGENTS], WORKERS)
    async with (
        server_for(redis) as url,
        connected(Target(url, pool, target.json), create=True, max_concurrent=LIMIT) as opened,
        _working(argv, worker_environment(url, pool), server_is_private=redis is None) as (workers, log),
    ):
        return await _Demonstration(opened, source, files, list(changes), target.json).run(workers, log)


class _Demonstration:
    """One run of the demo."""

    def __init__(self, pool: Pool, directory: str, files: int | None, changes: list[LimitChange], as_json: bool) -> None:
        self.pool, self.directory, self.files, self.changes, self.as_json = pool, directory, files, changes, as_json
        self.scope = f"demo-{keys.new_id()}"
        self.began = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    async def run(self, workers: Workers, log: IO[bytes]) -> ExitCode:
        try:
            since = await streams.newest(self.pool.gateway, f"{self.pool.prefix}events")
            root = await self.pool.spawn(PARENT, {"directory": self.directory, "files": self.files}, scopes=[self.scope])
            progress = Progress(root.id, PIECE, limits=[(await self.pool.stats()).max_concurrent])
            record = await self._follow(root, progress, since, workers, log)
        except asyncio.CancelledError:  # Ctrl-C
            if (task := asyncio.current_task()) is not None:
                task.uncancel()
            report = await self.pool.interrupt(self.scope, reason="Ctrl-C in the demo", wait=STOP_WITHIN)
            show_report(report, as_json=self.as_json)
            return ExitCode.INTERRUPTED
        return self._conclude(record, progress)

    async def _follow(self, root: AgentHandle, progress: Progress, since: str, workers: Workers, log: IO[bytes]) -> AgentRecord:
        """Show how it goes until the parent has settled."""
        settled = asyncio.ensure_future(root.wait())
        reading = asyncio.ensure_future(self._read_history(progress, since))
        ended = asyncio.ensure_future(workers.ended())
        try:
            async with _stage(self.as_json) as stage:
                while not settled.done():
                    await stage(self, progress)
                    await self._change_limit(progress)
                    done, _ = await asyncio.wait({settled, ended, reading}, timeout=FRAME_EVERY, return_when=asyncio.FIRST_COMPLETED)
                    if ended in done:
                        raise CommandFailed("workers_ended", f"the demo's workers ended: {_last_line(log)}", ExitCode.FAILED)
                    if reading in done:
                        reading.result()
                        await asyncio.wait({settled, ended}, timeout=FRAME_EVERY)
                await asyncio.wait({reading}, timeout=STOP_WITHIN)  # it ends with the parent's last event
                await stage(self, progress)
            return await settled
        finally:
            for task in (settled, reading, ended):
                task.cancel()

    async def _read_history(self, progress: Progress, since: str) -> None:
        async for event in self.pool.events(since):
            progress.take(event)
            await self._change_limit(progress)
            status = progress.statuses.get(progress.root)
            if status is not None and status.settled:
                return

    async def _change_limit(self, progress: Progress) -> None:
        while self.changes and self.changes[0].is_due(progress, self.seconds):
            await self.pool.set_max_concurrent(self.changes.pop(0).limit)

    def _conclude(self, record: AgentRecord, progress: Progress) -> ExitCode:
        seconds = self.seconds
        result = cast("dict[str, Any]", record.result) if isinstance(record.result, dict) else {}
        if "table" not in result:
            return show_end(record, None, as_json=self.as_json)
        if self.as_json:
            facts = {
                "directory": self.directory,
                "agent": record.id,
                "agents": len(progress.types),
                "seconds": round(seconds, 3),
                "peak": progress.peak,
                "limits": progress.limits,
                "within_limit": progress.within_limit,
                "in_order": progress.in_order,
            }
            show_json(facts | result)
        else:
            show(str(result["table"]))
            show("")
            show(closing_line(progress, seconds))
        return ExitCode.DONE if progress.within_limit and progress.in_order else ExitCode.FAILED


@asynccontextmanager
async def _working(
    argv: Sequence[str], environment: Mapping[str, str], *, server_is_private: bool
) -> AsyncGenerator[tuple[Workers, IO[bytes]]]:
    """Workers for as long as the block lasts; what they log is kept aside, for their last words."""
    with tempfile.TemporaryFile() as log:
        workers = Workers(argv, environment, server_is_private=server_is_private, output=log)
        await workers.start()
        try:
            yield workers, log
        finally:
            await workers.stop()


class _Stage:
    """Where the progress is shown: a live picture, lines, or nowhere."""

    def __init__(self, live: Live | None, lines: bool) -> None:
        self._live, self._lines = live, lines
        self._next_line = 0.0

    async def __call__(self, demonstration: _Demonstration, progress: Progress) -> None:
        seconds = demonstration.seconds
        if self._live is not None:
            records = await _records(demonstration.pool, progress.running())
            self._live.update(frame(demonstration.directory, progress, records, seconds), refresh=True)
        elif self._lines and seconds >= self._next_line:
            self._next_line = seconds + LINE_EVERY
            note(plain_line(progress, seconds))


@asynccontextmanager
async def _stage(as_json: bool) -> AsyncGenerator[_Stage]:
    if as_json or not watched():
        yield _Stage(None, lines=not as_json)
        return
    with Live(console=notes(), auto_refresh=False, transient=True) as live:
        yield _Stage(live, lines=False)


async def _records(pool: Pool, ids: Sequence[str]) -> list[AgentRecord]:
    answers = await asyncio.gather(*(pool.get(id) for id in ids), return_exceptions=True)
    return [answer for answer in answers if isinstance(answer, AgentRecord)]


def _directory(given: Path | None) -> str:
    directory = (given or Path(sysconfig.get_path("stdlib"))).expanduser().resolve()
    if not directory.is_dir():
        raise InvalidArgument(f"{str(given)!r} is no directory: expected one that holds Python files")
    return str(directory)


def _last_line(log: IO[bytes]) -> str:
    log.seek(0)
    lines = log.read().decode(errors="replace").split("\n")
    return next((line for line in reversed(lines) if line.strip()), "without a word")
