"""One worker process: an arq worker in an event loop, a lifeline beside it, and the way out."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys

from subagents_worker.arq_worker import AgentWorker
from subagents_worker.drain import drain
from subagents_worker.options import WorkerOptions
from subagents_worker.registry import Registry
from subagents_worker.runtime import Runtime

log = logging.getLogger(__name__)

STUCK = 76
"""Exit code of a process that had to leave agents behind; its supervisor reports them lost."""


def run_process(options: WorkerOptions, registry: Registry, worker: str, parent_pipe: int | None) -> int:
    """Run agents until told to stop; returns the exit code."""
    runner = asyncio.Runner(loop_factory=_loop_factory())
    with runner:
        left = runner.run(_serve(options, registry, worker, parent_pipe))
        if left:
            log.error("%s ends with %d agents that would not stop", worker, left)
            logging.shutdown()
            os._exit(STUCK)
    return 0


def _loop_factory() -> type[asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.Loop


async def _serve(options: WorkerOptions, registry: Registry, worker: str, parent_pipe: int | None) -> int:
    told, now = asyncio.Event(), asyncio.Event()

    def tell() -> None:
        (now if told.is_set() else told).set()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, tell)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the supervisor decides what it means
    if parent_pipe is not None:
        loop.add_reader(parent_pipe, _orphaned, loop, parent_pipe, tell)
    runtime = Runtime(options.url, options.pool, registry, slots=options.slots, grace=options.grace, worker=worker)
    waiting = asyncio.ensure_future(told.wait())
    starting = asyncio.ensure_future(runtime.start())
    await asyncio.wait({starting, waiting}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():  # told to go while it still waits for its pool
        starting.cancel()
        await asyncio.wait({starting})
        await runtime.pool.close()
        return 0
    starting.result()
    arq_worker = AgentWorker(runtime, options.url)
    main = asyncio.create_task(arq_worker.main(), name="subagents-claims")
    try:
        await asyncio.wait({main, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if main.done():
            main.result()
        left = await drain(arq_worker, runtime, main, timeout=options.drain_timeout, grace=options.grace, now=now)
        await runtime.stop()
        return left
    finally:
        await arq_worker.close()


def _orphaned(loop: asyncio.AbstractEventLoop, pipe: int, tell: object) -> None:
    """The supervisor is gone: nobody would restart or report this process, so it drains."""
    if not os.read(pipe, 1):
        loop.remove_reader(pipe)
        print("the supervisor is gone; this worker drains", file=sys.stderr)
        assert callable(tell)
        tell()
