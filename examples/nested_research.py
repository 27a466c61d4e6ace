"""Agents that spawn agents: at a limit of 1 a parent still gets its children's results, because it lends its permit.

Needs a server in SUBAGENTS_REDIS_URL. Starts a worker of its own.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from subagents import Pool

AGENTS = Path(__file__).parent / "agents" / "kitchen.py"


async def main() -> None:
    async with Pool.from_env(name="nested-research", max_concurrent=1) as pool:
        environment = {**os.environ, "SUBAGENTS_POOL": pool.name}
        worker = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "subagents_worker", AGENTS, env=environment, stderr=asyncio.subprocess.DEVNULL
        )
        try:
            await research(pool)
        finally:
            worker.terminate()
            await worker.wait()


async def research(pool: Pool) -> None:
    parent = await pool.spawn("research", {"topics": ["permits", "leases", "cutoffs"]})
    print(await parent.result(timeout=30))
    tree = await pool.list(tree=parent.id)
    print([(record.type, record.depth, record.status.value) for record in reversed(tree)])
    peak = max([event.active or 0 async for event in pool.events("0", follow=False) if event.kind == "admitted"])
    print("most at once:", peak)


if __name__ == "__main__":
    asyncio.run(main())
