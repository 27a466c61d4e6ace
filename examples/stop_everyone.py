"""Interrupt a session: what runs and what is queued stops, the rest goes on; then close the latch.

Needs a server in SUBAGENTS_REDIS_URL. Starts a worker of its own.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from subagents import Pool, PoolHalted

AGENTS = Path(__file__).parent / "agents" / "kitchen.py"


async def main() -> None:
    async with Pool.from_env(name="stop-everyone", max_concurrent=3) as pool:
        environment = {**os.environ, "SUBAGENTS_POOL": pool.name}
        worker = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "subagents_worker", AGENTS, env=environment, stderr=asyncio.subprocess.DEVNULL
        )
        try:
            await stop_a_session(pool)
        finally:
            worker.terminate()
            await worker.wait()


async def stop_a_session(pool: Pool) -> None:
    session = [await pool.spawn("sleep", {"seconds": 60}, scopes=["session-42"]) for _ in range(5)]
    bystander = await pool.spawn("sleep", {"seconds": 0.1}, scopes=["session-43"])
    running = 0
    async for event in pool.events("0"):
        running += event.kind == "started"
        if running == 3:
            break

    report = await pool.interrupt("session-42", reason="the user pressed Esc")
    print("complete:", report.complete)
    print("running agents stopped:", {outcome.value: count for outcome, count in report.outcomes().items()})
    print("queued agents stopped:", report.queued_stopped)
    print("session-42:", {(await handle.wait()).status.value for handle in session})
    print("session-43:", (await bystander.wait()).status.value)

    await pool.halt(reason="the bill")
    try:
        await pool.spawn("sleep", {"seconds": 1})
    except PoolHalted as refused:
        print("refused:", refused)
    await pool.unhalt()


if __name__ == "__main__":
    asyncio.run(main())
