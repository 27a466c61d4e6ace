"""Real worker processes, started and stopped by the tests."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import cast

from subagents import Pool
from support.probe import PROBE_VARIABLE
from support.waiting import eventually

AGENTS = str(Path(__file__).parent.parent / "agents" / "probe_agents.py")


class WorkerUnderTest:
    """One `python -m subagents_worker` with its processes."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self.process, self.log = process, log

    @property
    def pid(self) -> int:
        """The supervisor's pid."""
        return self.process.pid

    def children(self) -> list[int]:
        """The pids of its worker processes."""
        listing = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        return [int(pid) for pid in listing.read_text().split()] if listing.exists() else []

    def send(self, number: signal.Signals) -> None:
        """Signal the supervisor alone."""
        self.process.send_signal(number)

    def kill_everything(self) -> None:
        """SIGKILL to the supervisor first, so that it reports nothing, and then to its processes."""
        children = self.children()
        for pid in (self.pid, *children):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    async def gone(self, timeout: float = 30) -> int:
        """Its exit code, once it is gone."""
        return await asyncio.wait_for(self.process.wait(), timeout)


async def joined_by(pool: Pool, pid: int) -> int:
    """How many workers have joined under names that this process made; those that died before do not count."""
    names = cast("list[str]", await pool.gateway.redis.zrange(f"{pool.prefix}workers", 0, -1))
    return sum(f"-{pid}-" in name for name in names)


class Workers:
    """Starts workers for one pool; stops what is left at the end."""

    def __init__(self, pool: Pool, url: str, directory: Path, probe: Path) -> None:
        self._pool, self._url, self._directory, self._probe = pool, url, directory, probe
        self._all: list[WorkerUnderTest] = []

    async def start(
        self,
        *,
        processes: int = 1,
        slots: int = 10,
        agents: str = AGENTS,
        grace: float = 5,
        drain_timeout: float = 5,
        wait: bool = True,
        environment: dict[str, str] | None = None,
    ) -> WorkerUnderTest:
        """Start one; with `wait` it returns when all its processes have joined the pool."""
        log = self._directory / f"worker-{len(self._all)}.log"
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "subagents_worker", agents),
                *("--processes", str(processes), "--slots", str(slots), "--grace", str(grace), "--drain-timeout", str(drain_timeout)),
                env={
                    **os.environ,
                    "SUBAGENTS_REDIS_URL": self._url,
                    "SUBAGENTS_POOL": self._pool.name,
                    PROBE_VARIABLE: str(self._probe),
                    **(environment or {}),
                },
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        worker = WorkerUnderTest(process, log)
        self._all.append(worker)
        if wait:

            async def joined() -> bool:
                assert process.returncode is None, f"the worker ended: {log.read_text()[-2000:]}"
                return await joined_by(self._pool, process.pid) >= processes

            await eventually(joined, f"{processes} worker processes joined", 30)
        return worker

    async def stop(self) -> None:
        """End what is left, by pid."""
        for worker in self._all:
            if worker.process.returncode is None:
                for pid in worker.children():
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGCONT)
                worker.kill_everything()
                await worker.gone()

    def logs(self) -> str:
        """What all of them said."""
        return "\n".join(f"--- {worker.log.name}\n{worker.log.read_text()[-4000:]}" for worker in self._all)
