"""Spawn agents by name, wait for them, listen to one, and see how a failure looks.

Needs a server in SUBAGENTS_REDIS_URL. Starts a worker of its own, as `subagents worker examples/agents/kitchen.py` would.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from subagents import AgentFailed, Pool

AGENTS = Path(__file__).parent / "agents" / "kitchen.py"


async def main() -> None:
    async with Pool.from_env(name="first-steps", max_concurrent=2) as pool:
        worker = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "subagents_worker", AGENTS, env=environment(pool), stderr=asyncio.subprocess.DEVNULL
        )
        try:
            handle = await pool.spawn("greet", {"name": "world"})
            print(await handle.result(timeout=30))

            listened = await pool.spawn("count", {"upto": 3})
            async for event in listened.events():
                print(event.kind, event.data)

            record = await pool.run("count", {"upto": 2})
            print(record.status, record.result, record.progress)

            try:
                await (await pool.spawn("greet", {"nobody": True})).result(timeout=30)
            except AgentFailed as failed:
                print(failed.record.status, failed.record.error_kind)
        finally:
            worker.terminate()
            await worker.wait()


def environment(pool: Pool) -> dict[str, str]:
    """The worker's environment: the same server, this pool."""
    return {**os.environ, "SUBAGENTS_POOL": pool.name}


if __name__ == "__main__":
    asyncio.run(main())
