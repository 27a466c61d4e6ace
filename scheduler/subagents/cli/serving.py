"""`up`, `scheduler` and `worker`: the processes of a fleet, together on a laptop or each alone."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import typer

from subagents import keys, settings
from subagents.cli.connection import connected, named_url
from subagents.cli.errors import CommandFailed, ExitCode
from subagents.cli.options import Target, command
from subagents.cli.output import note, show, show_json
from subagents.cli.private_server import server_for
from subagents.cli.workers import Workers, worker_command, worker_environment
from subagents.errors import InvalidArgument
from subagents.scripts.gateway import Gateway

Modules = Annotated[list[str], typer.Argument(metavar="MODULE…", help="Importable modules, or paths of .py files, that declare agents.")]
MaybeModules = Annotated[list[str] | None, typer.Argument(metavar="MODULE…", help="Modules whose agents are to run here.")]
Processes = Annotated[int | None, typer.Option("--processes", metavar="N", help="Worker processes.")]
Slots = Annotated[int | None, typer.Option("--slots", metavar="M", help="Agents that one process runs at once.")]
Grace = Annotated[float | None, typer.Option("--grace", metavar="SECONDS", help="How long agents that are told to stop have to end.")]
DrainTimeout = Annotated[
    float | None, typer.Option("--drain-timeout", metavar="SECONDS", help="How long a worker that is told to go waits for its agents.")
]
MaxConcurrent = Annotated[
    int | None, typer.Option("--max-concurrent", metavar="N", help="The limit of the pool, if it is made now; `limit` changes it later.")
]


@command
def worker(
    target: Target,
    modules: Modules,
    processes: Processes = None,
    slots: Slots = None,
    grace: Grace = None,
    drain_timeout: DrainTimeout = None,
) -> ExitCode:
    """Run agents in worker processes.

    Ctrl-C or SIGTERM lets them end (they drain); a second one hurries them.
    """
    url, pool = named_url(target), keys.pool_name(target.pool)
    Gateway(url)  # a URL of the wrong kind is refused before this process is another
    options = {"processes": processes, "slots": slots, "grace": grace, "drain-timeout": drain_timeout}
    argv = worker_command(modules, options)
    os.execve(argv[0], argv, worker_environment(url, pool))


@command
async def scheduler(target: Target, max_concurrent: MaxConcurrent = None) -> ExitCode:
    """Run a scheduler, which repairs what crashes leave behind.

    Any number may run; one of them leads. Ctrl-C or SIGTERM ends it.
    """
    async with stop_signal() as stop, _scheduling(target, max_concurrent):
        if target.json:
            show_json({"scheduler": "started", "pool": target.pool})
        else:
            show(f"scheduler of pool {target.pool} runs; Ctrl-C ends it")
        await stop.wait()
    return ExitCode.DONE


@command
async def up(
    target: Target,
    modules: MaybeModules = None,
    directory: Annotated[Path | None, typer.Option("--directory", help="Keep the server's data here, for the next time.")] = None,
    port: Annotated[int | None, typer.Option("--port", help="Listen on this port of 127.0.0.1, 0: a free one; default: a socket.")] = None,
    max_concurrent: MaxConcurrent = None,
    processes: Processes = None,
    slots: Slots = None,
    grace: Grace = None,
    drain_timeout: DrainTimeout = None,
) -> ExitCode:
    """Run everything on this machine: server, scheduler, workers.

    The server is a private one unless --redis names another; workers run if modules are given. Ctrl-C stops all of it, in order.
    """
    if target.url is not None and (directory is not None or port is not None):
        raise InvalidArgument(
            f"--directory and --port are for the private server, but --redis or {settings.REDIS_URL_VARIABLE} names another: drop one"
        )
    options = {"processes": processes, "slots": slots, "grace": grace, "drain-timeout": drain_timeout}
    argv = worker_command(modules, options) if modules else None
    async with (
        stop_signal() as stop,
        server_for(target.url, directory=directory, port=port) as url,
        _scheduling(Target(url, target.pool, target.json), max_concurrent),
    ):
        workers = Workers(argv, worker_environment(url, target.pool), server_is_private=target.url is None) if argv else None
        _introduce(target, url, modules or [])
        if workers is None:
            await stop.wait()
            return ExitCode.DONE
        await workers.start()
        code = await _first_of(stop, workers)
        if code is ExitCode.DONE:
            if not target.json:
                note("stopping: workers drain first, then the scheduler and the server; Ctrl-C again hurries")
            await _drain(workers, stop)
        return code


def _introduce(target: Target, url: str, modules: list[str]) -> None:
    if target.json:
        show_json({"redis": url, "pool": target.pool, "modules": modules})
        return
    show(f"pool {target.pool} is up. In another terminal:")
    show(f"  export SUBAGENTS_REDIS_URL='{url}'" + (f" SUBAGENTS_POOL='{target.pool}'" if target.pool != "default" else ""))
    show("  subagents ps" if modules else "  subagents worker MODULE")
    note("Ctrl-C stops everything")


@asynccontextmanager
async def stop_signal() -> AsyncGenerator[asyncio.Event]:
    """An event that Ctrl-C and SIGTERM set, instead of what they do otherwise."""
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, told.set)
    try:
        yield told
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


@asynccontextmanager
async def _scheduling(target: Target, max_concurrent: int | None) -> AsyncGenerator[None]:
    """A scheduler that runs while the block does; the pool is there when the block begins."""
    from subagents.scheduler import Scheduler  # other commands need none

    async with connected(target, create=True, max_concurrent=max_concurrent):
        pass
    started = Scheduler(named_url(target), pool=target.pool, max_concurrent=max_concurrent)
    await started.start()
    try:
        yield
    finally:
        await started.stop()


async def _run_out(workers: Workers) -> ExitCode:
    """The exit code that the workers' own end comes to; what was wrong with a module or a server they have said themselves."""
    code = await workers.ended()
    if code in (ExitCode.USAGE, ExitCode.UNREACHABLE):
        return ExitCode(code)
    raise CommandFailed("workers_ended", f"the workers ended by themselves with exit code {code}; see what they said", ExitCode.FAILED)


async def _drain(workers: Workers, stop: asyncio.Event) -> None:
    """Stop the workers; each further signal hurries them."""
    stopping = asyncio.ensure_future(workers.stop())
    while not stopping.done():
        stop.clear()
        told = asyncio.ensure_future(stop.wait())
        await asyncio.wait({stopping, told}, return_when=asyncio.FIRST_COMPLETED)
        if told.done():
            workers.tell()
        told.cancel()


async def _first_of(stop: asyncio.Event, workers: Workers) -> ExitCode:
    """Wait for the word to stop, or for the workers' own end, which is a failure or an exit code."""
    told, out = asyncio.ensure_future(stop.wait()), asyncio.ensure_future(_run_out(workers))
    await asyncio.wait({told, out}, return_when=asyncio.FIRST_COMPLETED)
    told.cancel()
    if out.done():
        return out.result()
    out.cancel()
    return ExitCode.DONE
