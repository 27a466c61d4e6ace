"""Does a long queue cost anything? The same calls on an empty pool and on one with 100 000 queued agents, alternating in one run.

    python bench/queue_depth.py [QUEUED]

Prints the medians and their ratio; a ratio near 1 means that the call does not care how many agents are queued.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import TypeVar

from subagents import SpawnRequest, keys
from subagents.embedded import server
from subagents.scripts import calls
from subagents.scripts.calls import Call, Spec
from subagents.scripts.gateway import ThreadGateway
from subagents.settings import PoolSettings

T = TypeVar("T")

ROUNDS, INTERRUPT_ROUNDS, BATCH = 200, 3, 100
REQUEST = SpawnRequest(type="bench", input={"n": 1}, scopes=("bench",))
SINGLE = SpawnRequest(type="bench", input={"n": 1}, scopes=("single",))


class PoolUnderBench:
    """One pool, driven by single script calls."""

    def __init__(self, gateway: ThreadGateway, name: str, queued: int) -> None:
        self._gateway, self.prefix = gateway, keys.prefix(name)
        self.call(calls.create(self.prefix, PoolSettings(max_concurrent=0).stored(), "bench"))
        self.call(calls.join(self.prefix, "bench-worker", "{}", {"bench": "{}"}))
        self.fill(queued)

    def call(self, call: Call[T]) -> T:
        """Send one call."""
        return self._gateway(call)

    def claim(self) -> Spec:
        """Start the one agent that is admitted."""
        (spec,) = self._gateway(calls.claim(self.prefix, "bench-worker", 1, ["bench"], keys.nonce())).specs
        return spec

    def fill(self, queued: int) -> None:
        """Queue that many agents."""
        for _ in range(0, queued, BATCH):
            self._gateway(calls.spawn(self.prefix, [REQUEST.wire(keys.new_id()) for _ in range(BATCH)]))

    def spawn(self, request: SpawnRequest = REQUEST) -> str:
        """Queue one agent."""
        agent_id = keys.new_id()
        self._gateway(calls.spawn(self.prefix, [request.wire(agent_id)]))
        return agent_id


def timed(action: Callable[[], object]) -> float:
    """Milliseconds."""
    began = time.perf_counter()
    action()
    return (time.perf_counter() - began) * 1000


def measure_calls(pool: PoolUnderBench, times: dict[str, list[float]]) -> None:
    """One round of the calls that happen all the time; the pool is left as it was."""
    agent_id = keys.new_id()
    times["spawn"].append(timed(lambda: pool.call(calls.spawn(pool.prefix, [REQUEST.wire(agent_id)]))))
    times["abort"].append(timed(lambda: pool.call(calls.abort(pool.prefix, agent_id, "", ""))))
    pool.spawn()
    times["admit"].append(timed(lambda: pool.call(calls.set_limit(pool.prefix, 1, "bench"))))
    pool.call(calls.set_limit(pool.prefix, 0, "bench"))
    spec = pool.claim()
    settlement = calls.Settlement(spec.id, spec.token, "completed")
    times["finish"].append(timed(lambda: pool.call(calls.finish(pool.prefix, [settlement]))))
    pool.spawn(SINGLE)
    interrupt = calls.interrupt(pool.prefix, keys.new_id(), "single", force=False, kill=False, reason="", by="bench")
    times["interrupt a scope"].append(timed(lambda: pool.call(interrupt)))
    pool.call(calls.sweep(pool.prefix, "", 10))


def measure_interrupt_of_everyone(pool: PoolUnderBench, times: dict[str, list[float]]) -> None:
    """Interrupt all that is queued, and at once spawn one more, which must be admitted in that same call."""
    interrupt = calls.interrupt(pool.prefix, keys.new_id(), keys.EVERYTHING, force=False, kill=False, reason="", by="bench")
    times["interrupt everyone"].append(timed(lambda: pool.call(interrupt)))
    pool.call(calls.set_limit(pool.prefix, 1, "bench"))
    agent_id = keys.new_id()
    times["spawn after it"].append(timed(lambda: pool.call(calls.spawn(pool.prefix, [REQUEST.wire(agent_id)]))))
    spec = pool.claim()
    assert spec.id == agent_id, "the agent spawned after the interrupt is not the next to run"
    pool.call(calls.finish(pool.prefix, [calls.Settlement(spec.id, spec.token, "completed")]))
    pool.call(calls.set_limit(pool.prefix, 0, "bench"))
    while pool.call(calls.sweep(pool.prefix, "", 200)):
        continue


def main(queued: int) -> None:
    """Measure both pools in turn and print the table."""
    names = ("spawn", "admit", "finish", "abort", "interrupt a scope", "interrupt everyone", "spawn after it")
    empty: dict[str, list[float]] = {name: [] for name in names}
    deep: dict[str, list[float]] = {name: [] for name in names}
    with server() as running, ThreadGateway(running.url, socket_timeout=30) as gateway:
        pools = (PoolUnderBench(gateway, "empty", 0), PoolUnderBench(gateway, "deep", queued))
        for _ in range(ROUNDS):
            for pool, times in zip(pools, (empty, deep), strict=True):
                measure_calls(pool, times)
        for _ in range(INTERRUPT_ROUNDS):
            for pool, times in zip(pools, (empty, deep), strict=True):
                measure_interrupt_of_everyone(pool, times)
            pools[1].fill(queued)
    print(f"{'call':20} {'empty, ms':>10} {f'{queued:,} queued, ms':>20} {'ratio':>7}")
    for name in names:
        short, long = statistics.median(empty[name]), statistics.median(deep[name])
        print(f"{name:20} {short:10.3f} {long:20.3f} {long / short:7.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
