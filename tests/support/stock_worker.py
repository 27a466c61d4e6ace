"""A stock arq worker, as an application of its own would run it: `python -m support.stock_worker MODULE TYPE [SLOTS [GRACE]]`.

SIGTERM cancels it, as arq's own signal handler would.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from contextlib import suppress

from arq.worker import Worker

from subagents_worker.loading import load_agents
from subagents_worker.stock import stock_worker_settings


async def main(module: str, type: str, slots: str = "10", grace: str = "5") -> None:
    registry = load_agents([module])
    settings = stock_worker_settings(
        os.environ["SUBAGENTS_REDIS_URL"],
        pool=os.environ["SUBAGENTS_POOL"],
        type=type,
        registry=registry,
        slots=int(slots),
        grace=float(grace),
    )
    worker = Worker(**settings)
    running = asyncio.ensure_future(worker.async_run())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.handle_sig, signal.SIGTERM)
    with suppress(asyncio.CancelledError):
        await running
    await worker.close()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(main(*sys.argv[1:]))
