"""The FIFO semaphore without agents: ten tasks, in this process or any other, at most two at once, first come, first served.

Needs a server in SUBAGENTS_REDIS_URL.
"""

from __future__ import annotations

import asyncio
import os

from subagents import Semaphore


async def main() -> None:
    running = most = 0
    order: list[int] = []
    async with Semaphore(os.environ["SUBAGENTS_REDIS_URL"], name="printer", max_concurrent=2) as semaphore:

        async def print_page(number: int) -> int:
            nonlocal running, most
            running, most = running + 1, max(most, running + 1)
            order.append(number)
            await asyncio.sleep(0.02)
            running -= 1
            return number

        handles = [await semaphore.schedule(print_page(number)) for number in range(10)]
        print("pages:", [await handle for handle in handles])
        print("in order:", order == sorted(order))
        print("most at once:", most)
        async with semaphore.permit():
            print("held:", (await semaphore.statistics()).held)


if __name__ == "__main__":
    asyncio.run(main())
