"""The bare semaphore, sentence by sentence (L1 to L16), on a real server; whoever has to die or freeze is a real process."""

import ast
import asyncio
import contextlib
import itertools
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from pathlib import Path
from typing import Any

import pytest
import redis

import subagents.semaphore
from subagents import keys
from subagents.embedded import EmbeddedServer, server
from subagents.errors import InvalidArgument, PermitCleared, PermitLost, PoolNotFound, RedisUnreachable
from subagents.permit import Permit
from subagents.permit_keeper import keep
from subagents.scripts import calls
from subagents.scripts.gateway import Gateway
from subagents.scripts.replies import Code
from subagents.semaphore import Semaphore, SemaphoreClosed
from subagents.settings import LeaseTimes, PoolSettings, milliseconds

NAME = "gpu"
PREFIX = keys.semaphore_prefix(NAME)
LEASE = 1.0
OUT_OF_BOUNDS: list[Any] = [True, 1.0, math.nan, -1, 1_000_001, "4"]


@pytest.fixture(scope="module")
def semaphore_server() -> Generator[EmbeddedServer]:
    with server() as running:
        yield running


@pytest.fixture
def client(semaphore_server: EmbeddedServer) -> Generator[redis.Redis]:
    with redis.Redis.from_url(semaphore_server.url, decode_responses=True) as connected:  # pyright: ignore[reportUnknownMemberType]
        connected.flushall()
        yield connected


@pytest.fixture
def semaphore_url(semaphore_server: EmbeddedServer, client: redis.Redis) -> str:
    del client
    return semaphore_server.url


@pytest.fixture
async def gateway(semaphore_url: str) -> AsyncGenerator[Gateway]:
    opened = Gateway(semaphore_url)
    yield opened
    await opened.close()


async def wait_until(predicate: Callable[[], bool | Awaitable[bool]], description: str, within: float = 20) -> None:
    """Wait until the predicate holds."""
    deadline = time.monotonic() + within
    while True:
        holds = predicate()
        if holds if isinstance(holds, bool) else await holds:
            return
        assert time.monotonic() < deadline, f"not within {within:g} s: {description}"
        await asyncio.sleep(0.005)


class Crew:
    """Work that stays until it is let go, and remembers who came and how many were there at once."""

    def __init__(self) -> None:
        self.came: list[int] = []
        self.inside = self.peak = 0
        self.go = asyncio.Event()

    def worker(self, number: int = 0) -> Callable[[], Any]:
        async def work() -> int:
            self.came.append(number)
            self.inside += 1
            self.peak = max(self.peak, self.inside)
            try:
                await self.go.wait()
            finally:
                self.inside -= 1
            return number

        return work


PROCESS = """
import asyncio, os, signal, sys, time
from subagents.semaphore import PermitLost, Semaphore

def say(*words):
    print(*words, flush=True)

async def told(word):
    line = await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    assert line.strip() == word, line

def probe(path):  # outside of Redis: what ran, and when
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    return lambda word: os.write(log, f"{time.monotonic()} {os.getpid()} {word}\\n".encode())

url, *rest = sys.argv[1:]
asyncio.run(main(url, *rest))
"""


class Process:
    """A process of its own that runs `main`, told what to do by lines on stdin and heard on stdout."""

    def __init__(self, main: str, *arguments: str) -> None:
        head, tail = PROCESS.split("\nurl, *rest", 1)
        source = f"{head}\n{main}\nurl, *rest{tail}"
        command = [sys.executable, "-c", source, *arguments]
        self.popen = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        assert self.popen.stdin is not None
        assert self.popen.stdout is not None
        self.stdin, self.stdout = self.popen.stdin, self.popen.stdout

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(BrokenPipeError):
            self.stdin.close()
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait()
        self.stdout.close()

    async def hear(self, expected: str) -> None:
        line = await asyncio.to_thread(self.stdout.readline)
        assert line.split() == expected.split()

    def tell(self, word: str) -> None:
        self.stdin.write(word + "\n")
        self.stdin.flush()

    def send(self, number: signal.Signals) -> None:
        self.popen.send_signal(number)

    async def ended(self) -> int:
        return await asyncio.to_thread(self.popen.wait, 30)

    async def freeze(self) -> None:
        """Stop the process; on return it runs no more."""
        self.send(signal.SIGSTOP)
        _, status = await asyncio.to_thread(os.waitpid, self.popen.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)


HOLDS = """
async def main(url, name, lease, end_process):
    async with Semaphore(url, name=name, max_concurrent=1, lease=float(lease), end_process=end_process == "1") as semaphore:
        try:
            async with semaphore.permit() as permit:
                say("holding")
                await told("leave")
                say("lost" if permit.lost else "held")
        except PermitLost:
            say("PermitLost")
        else:
            say("given back")
"""


def holder(url: str, *, lease: float = LEASE, end_process: bool = False) -> Process:
    """A process that holds the one permit until it is told to leave."""
    return Process(HOLDS, url, NAME, str(lease), "1" if end_process else "0")


# L1 to L3: admission ------------------------------------------------------------------------------------------------


async def test_L1_a_free_permit_is_granted_when_schedule_returns(semaphore_url: str) -> None:
    crew = Crew()
    async with Semaphore(semaphore_url, name=NAME, max_concurrent=2) as semaphore:
        handles = [await semaphore.schedule(crew.worker(number)) for number in range(3)]
        assert [handle.granted for handle in handles] == [True, True, False]
        assert (await semaphore.statistics()).held == 2
        crew.go.set()
        assert [await handle for handle in handles] == [0, 1, 2]


async def test_L1_a_free_permit_costs_one_round_trip_and_no_subscription(semaphore_url: str, client: redis.Redis) -> None:
    def calls_so_far() -> int:
        statistics: dict[str, Any] = client.info("commandstats")  # type: ignore[assignment]
        return sum(statistics.get(f"cmdstat_{command}", {}).get("calls", 0) for command in ("evalsha", "eval", "subscribe"))

    async with Semaphore(semaphore_url, name=NAME, lease=3600) as semaphore:
        async with semaphore.permit():
            pass  # the scripts are loaded
        before = calls_so_far()
        async with semaphore.permit():
            assert calls_so_far() == before + 1
        assert calls_so_far() == before + 2


async def test_L2_no_more_than_the_limit_run_at_once_in_all_processes_together(semaphore_url: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    main = """
async def main(url, name, log):
    note = probe(log)
    async with Semaphore(url, name=name, max_concurrent=3) as semaphore:
        async def work():
            note("in")
            await asyncio.sleep(0.003)
            note("out")
        for handle in [await semaphore.schedule(work) for _ in range(60)]:
            await handle
    say("done")
"""
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(Process(main, semaphore_url, NAME, str(log))) for _ in range(3)]
        for process in processes:
            await process.hear("done")
    words = [line.split()[2] for line in sorted(log.read_text().splitlines(), key=lambda line: float(line.split()[0]))]
    running = list(itertools.accumulate(1 if word == "in" else -1 for word in words))
    assert len(words) == 3 * 60 * 2
    assert max(running) == 3
    assert running[-1] == 0


async def failing_every_fifth(number: int, order: list[int], crew: Crew) -> int:
    order.append(number)
    crew.inside += 1
    crew.peak = max(crew.peak, crew.inside)
    if crew.peak == 4:
        crew.go.set()
    await crew.go.wait()  # the first four meet
    await asyncio.sleep(random.random() / 500)
    crew.inside -= 1
    if number % 5 == 0:
        raise ValueError(number)
    return number


async def test_L3_two_hundred_tasks_start_in_exactly_the_order_in_which_they_were_scheduled(semaphore_url: str) -> None:
    crew, order = Crew(), list[int]()
    async with Semaphore(semaphore_url, name=NAME, max_concurrent=4) as semaphore:
        handles = [await semaphore.schedule(failing_every_fifth(number, order, crew)) for number in range(200)]
        results = await asyncio.gather(*handles, return_exceptions=True)
        assert (await semaphore.statistics()).held == 0
    assert order == list(range(200))
    assert crew.peak == 4
    assert [number for number, result in enumerate(results) if isinstance(result, ValueError)] == list(range(0, 200, 5))


async def test_L3_blocks_of_one_process_start_in_the_order_in_which_they_were_entered(semaphore_url: str) -> None:
    crew, order = Crew(), list[int]()
    async with Semaphore(semaphore_url, name=NAME, max_concurrent=4) as semaphore:

        async def enter(number: int) -> None:
            async with semaphore.permit():
                await failing_every_fifth(number, order, crew)

        await asyncio.gather(*(enter(number) for number in range(200)), return_exceptions=True)
        assert (await semaphore.statistics()).held == 0
    assert order == list(range(200))
    assert crew.peak == 4


async def test_L3_a_newcomer_from_another_process_goes_behind_those_who_wait(semaphore_url: str) -> None:
    crew = Crew()
    async with Semaphore(semaphore_url, name=NAME, max_concurrent=1) as one, Semaphore(semaphore_url, name=NAME) as other:
        handles = [await (one, other)[number % 2].schedule(crew.worker(number)) for number in range(6)]
        assert [(await one.statistics(handle.id)).position for handle in handles] == [None, 1, 2, 3, 4, 5]
        crew.go.set()
        await asyncio.gather(*handles)
    assert crew.peak == 1
    assert crew.came == list(range(6))


# L4 to L6: the end of a task ----------------------------------------------------------------------------------------


def raises_at_once() -> Any:
    raise LookupError("before its first await")


async def raises_inside() -> None:
    raise KeyError("inside")


async def cancels_itself() -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize("work", [raises_at_once, raises_inside, cancels_itself])
async def test_L4_work_that_fails_gives_its_permit_back_and_the_next_has_it(semaphore_url: str, work: Callable[[], Any]) -> None:
    crew = Crew()
    async with Semaphore(semaphore_url, name=NAME, max_concurrent=1) as semaphore:
        async with semaphore.permit():
            failing = await semaphore.schedule(work)
            following = await semaphore.schedule(crew.worker())
        with pytest.raises((LookupError, asyncio.CancelledError)):
            await failing
        after = await semaphore.statistics()
        assert (after.held, after.waiting) == (1, 0)
        crew.go.set()
        await following
        assert (await semaphore.statistics()).held == 0


async def test_L4_a_permit_is_given_back_once(gateway: Gateway) -> None:
    await gateway(calls.create(PREFIX, PoolSettings(max_concurrent=1).stored(), "test"))
    token = (await gateway(calls.permit_acquire(PREFIX, "a"))).text(0)
    for waiter in "bc":
        await gateway(calls.permit_acquire(PREFIX, waiter))
    assert await gateway(calls.permit_release(PREFIX, "a", token)) is Code.RELEASED
    assert await gateway(calls.permit_release(PREFIX, "a", token)) is Code.STALE
    assert (await gateway(calls.permit_renew(PREFIX, "b", ""))).code is Code.HELD
    assert (await gateway(calls.permit_renew(PREFIX, "c", ""))).code is Code.WAITING


async def test_L4_the_permit_of_a_killed_process_comes_back_by_its_lease(semaphore_url: str) -> None:
    with holder(semaphore_url) as process:
        await process.hear("holding")
        async with Semaphore(semaphore_url, name=NAME) as semaphore:
            process.send(signal.SIGKILL)
            async with semaphore.permit(timeout=20 * LEASE):
                assert (await semaphore.statistics()).held == 1
            assert (await semaphore.statistics()).held == 0


async def test_L4_the_place_of_a_killed_process_takes_no_permit(semaphore_url: str) -> None:
    crew = Crew()
    async with Semaphore(semaphore_url, name=NAME, max_concurrent=1, lease=LEASE) as semaphore:
        async with semaphore.permit():
            with holder(semaphore_url) as process:
                await wait_until(lambda: waiting_is(semaphore, 1), "the process waits")
                process.send(signal.SIGKILL)
                assert await process.ended() == -signal.SIGKILL
            handle = await semaphore.schedule(crew.worker())
            await wait_until(lambda: waiting_is(semaphore, 1), "the dead place is gone")
        crew.go.set()
        await handle


async def waiting_is(semaphore: Semaphore, count: int) -> bool:
    return (await semaphore.statistics()).waiting == count


async def held_is(semaphore: Semaphore, count: int) -> bool:
    return (await semaphore.statistics()).held == count


async def test_L5_the_handle_gives_the_value_or_the_same_failure(semaphore_url: str) -> None:
    failure = ValueError("mine")

    async def fails() -> None:
        raise failure

    async def succeeds() -> dict[str, int]:
        return {"answer": 42}

    async with Semaphore(semaphore_url, name=NAME) as semaphore:
        good, bad = await semaphore.schedule(succeeds()), await semaphore.schedule(fails)
        assert await good == {"answer": 42}
        assert await good == {"answer": 42}
        with pytest.raises(ValueError, match="mine") as caught:
            await bad
        assert caught.value is failure


async def test_L5_giving_up_the_wait_for_a_handle_does_not_touch_the_work(semaphore_url: str) -> None:
    crew = Crew()
    async with Semaphore(semaphore_url, name=NAME) as semaphore:
        handle = await semaphore.schedule(crew.worker(7))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await handle
        assert not handle.done()
        crew.go.set()
        assert await handle == 7


async def test_L6_handles_settle_when_the_semaphore_is_left(semaphore_url: str) -> None:
    crew = Crew()
    crew.go.set()
    async with Semaphore(semaphore_url, name=NAME, max_concurrent=1) as semaphore:
        handles = [await semaphore.schedule(crew.worker(number)) for number in range(10)]
    assert [await handle for handle in handles] == list(range(10))


async def test_L6_handles_settle_when_the_semaphore_is_left_by_an_error(semaphore_url: str, client: redis.Redis) -> None:
    crew = Crew()
    handles = list[subagents.semaphore.Scheduled[Any]]()
    never = crew.worker(1)()

    async def leave_by_an_error() -> None:
        async with Semaphore(semaphore_url, name=NAME, max_concurrent=1) as semaphore:
            handles.append(await semaphore.schedule(crew.worker(0)))
            handles.append(await semaphore.schedule(never))
            await wait_until(lambda: crew.inside == 1, "the first runs")
            raise KeyError("out")

    with pytest.raises(KeyError, match="out"):
        await leave_by_an_error()
    assert all(handle.done() for handle in handles)
    assert crew.came == [0]
    assert set(client.keys(f"{PREFIX}*")) == {PREFIX + key for key in ("config", "clock", "seq")}  # type: ignore[arg-type]


async def test_L6_closing_turns_away_those_who_wait(semaphore_url: str) -> None:
    async with Semaphore(semaphore_url, name=NAME, max_concurrent=0) as observer:
        semaphore = Semaphore(semaphore_url, name=NAME)
        await semaphore.start()
        waiter = asyncio.create_task(semaphore.permit().__aenter__())
        await wait_until(lambda: waiting_is(observer, 1), "it waits")
        await semaphore.close()
        with pytest.raises(SemaphoreClosed):
            await waiter
        with pytest.raises(SemaphoreClosed):
            await semaphore.statistics()
        await semaphore.close()
        assert (await observer.statistics()).waiting == 0


async def test_L6_a_flushed_server_ends_the_wait_with_an_error(semaphore_url: str, client: redis.Redis) -> None:
    async with Semaphore(semaphore_url, name=NAME, max_concurrent=0, lease=LEASE) as semaphore:
        handle = await semaphore.schedule(Crew().worker())
        client.flushall()
        with pytest.raises(PoolNotFound):
            await handle


async def test_L6_waiting_outlives_an_outage_of_the_server() -> None:
    crew = Crew()
    with server() as paused:
        async with Semaphore(paused.url, name=NAME, max_concurrent=1, lease=LEASE) as semaphore:
            first, second = [await semaphore.schedule(crew.worker(number)) for number in range(2)]
            os.kill(paused.pid, signal.SIGSTOP)
            try:
                started = time.monotonic()
                await wait_until(lambda: time.monotonic() > started + 2 * LEASE, "the outage is longer than a lease")
            finally:
                os.kill(paused.pid, signal.SIGCONT)
            crew.go.set()
            assert [await first, await second] == [0, 1]


# L7 to L9: the limit ------------------------------------------------------------------------------------------------


async def test_L7_raising_the_limit_admits_exactly_the_newly_admissible_at_once(semaphore_url: str) -> None:
    crew = Crew()
    async with Semaphore(semaphore_url, name=NAME, max_concurrent=0) as semaphore:
        handles = [await semaphore.schedule(crew.worker(number)) for number in range(250)]
        assert await semaphore.set_max_concurrent(3) == 0
        assert (await semaphore.statistics()).held == 3
        await wait_until(lambda: crew.came == [0, 1, 2], "exactly three came")
        assert await semaphore.set_max_concurrent(230) == 3
        assert (await semaphore.statistics()).held == 230
        await wait_until(lambda: crew.inside == 230, "230 are inside")
        assert crew.came == list(range(230))
        crew.go.set()
        await asyncio.gather(*handles)


async def test_L8_lowering_the_limit_stops_nobody_and_admits_nobody_until_enough_have_ended(semaphore_url: str) -> None:
    leave = [asyncio.Event() for _ in range(5)]
    async with Semaphore(semaphore_url, name=NAME, max_concurrent=4) as semaphore:
        handles = [await semaphore.schedule(leave[number].wait) for number in range(5)]
        await semaphore.set_max_concurrent(2)
        for number, expected in enumerate([(3, 1), (2, 1), (2, 0), (1, 0)]):
            leave[number].set()
            assert await handles[number]
            now = await semaphore.statistics()
            assert (now.held, now.waiting) == expected
        leave[4].set()
        await handles[4]


async def test_L9_zero_holds_everyone_until_the_limit_is_raised(semaphore_url: str) -> None:
    async with Semaphore(semaphore_url, name=NAME, max_concurrent=0) as semaphore:
        with pytest.raises(TimeoutError, match="no permit of semaphore 'gpu' came free within 0 s"):
            async with semaphore.permit(timeout=0):
                pytest.fail("nobody may come in")
        assert (await semaphore.statistics()).waiting == 0
        await semaphore.set_max_concurrent(1)
        async with semaphore.permit(timeout=0):
            pass


@pytest.mark.parametrize("limit", OUT_OF_BOUNDS)
async def test_L9_a_limit_out_of_bounds_is_refused_with_the_bounds(semaphore_url: str, limit: Any) -> None:
    async with Semaphore(semaphore_url, name=NAME, max_concurrent=5) as semaphore:
        with pytest.raises(InvalidArgument, match="integer from 0 to 1 000 000"):
            await semaphore.set_max_concurrent(limit)
        assert (await semaphore.statistics()).limit == 5
    with pytest.raises(InvalidArgument, match="integer from 0 to 1 000 000"):
        Semaphore(semaphore_url, name=NAME, max_concurrent=limit)


async def test_L9_the_stored_limit_stands_until_someone_sets_it(semaphore_url: str) -> None:
    async with (
        Semaphore(semaphore_url, name=NAME, max_concurrent=7) as one,
        Semaphore(semaphore_url, name=NAME, max_concurrent=9) as other,
    ):
        assert (await other.statistics()).limit == 7
        await other.set_max_concurrent(8)
        assert (await one.statistics()).limit == 8


# L10 to L14 ---------------------------------------------------------------------------------------------------------


async def test_L10_clear_turns_away_all_who_wait_and_touches_none_who_runs(semaphore_url: str) -> None:
    crew = Crew()
    async with Semaphore(semaphore_url, name=NAME, max_concurrent=1) as semaphore, Semaphore(semaphore_url, name=NAME) as other:
        running = await semaphore.schedule(crew.worker(0))
        waiting = [await (semaphore, other)[number % 2].schedule(crew.worker(number)) for number in range(1, 40)]
        assert await other.clear() == 39
        for turned_away in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(turned_away, PermitCleared)
        assert not running.done()
        later = await semaphore.schedule(crew.worker(100))
        crew.go.set()
        assert [await running, await later] == [0, 100]
    assert crew.came == [0, 100]


async def test_L10_those_who_wait_learn_of_a_clear_also_when_the_message_is_lost(semaphore_url: str, client: redis.Redis) -> None:
    async with Semaphore(semaphore_url, name=NAME, max_concurrent=0, lease=LEASE) as semaphore:
        handle = await semaphore.schedule(Crew().worker())
        with deaf(client):
            await semaphore.clear()
            with pytest.raises(PermitCleared):
                await handle


async def test_L11_the_held_count_is_the_leases(semaphore_url: str, client: redis.Redis) -> None:
    async with Semaphore(semaphore_url, name=NAME, max_concurrent=2) as semaphore, semaphore.permit() as permit:
        assert client.zcard(f"{PREFIX}active") == 1
        client.zadd(f"{PREFIX}active", {"somebody": time.time() * 1000})
        assert (await semaphore.statistics()).held == 2
        client.zrem(f"{PREFIX}active", "somebody")
        assert (await semaphore.statistics()).held == 1
        assert not permit.lost


def test_L12_the_semaphore_imports_nothing_of_agents_pools_or_workers() -> None:
    package = Path(subagents.semaphore.__file__).parent
    foundation = {"keys", "settings", "errors", "models.stats", "scripts"}
    seen, todo = set[str](), ["semaphore"]
    while todo:
        module = todo.pop()
        seen.add(module)
        for node in ast.walk(ast.parse((package / f"{module}.py").read_text())):
            names = list[str]()
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "subagents":
                inner = node.module.partition(".")[2]
                names = [inner] if inner else [alias.name for alias in node.names]
            elif isinstance(node, ast.Import):
                assert not any(alias.name.startswith("subagents") for alias in node.names)
            for name in names:
                if name not in foundation and name.split(".")[0] != "scripts" and name not in seen:
                    todo.append(name)
    assert seen == {"semaphore", "scheduled", "permit", "permit_line", "permit_keeper", "deadman"}


async def test_L13_whoever_is_stopped_while_waiting_leaves_at_once(semaphore_url: str) -> None:
    crew = Crew()
    async with Semaphore(semaphore_url, name=NAME, max_concurrent=1) as semaphore:
        running = await semaphore.schedule(crew.worker(0))
        stopped = await semaphore.schedule(crew.worker(1))
        behind = await semaphore.schedule(crew.worker(2))
        stopped.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopped
        assert not running.done()
        assert (await semaphore.statistics(behind.id)).position == 1
        crew.go.set()
        assert [await running, await behind] == [0, 2]
    assert crew.came == [0, 2]


async def test_L13_a_wait_that_times_out_leaves_at_once(semaphore_url: str) -> None:
    async with Semaphore(semaphore_url, name=NAME, max_concurrent=1) as semaphore, semaphore.permit():
        with pytest.raises(TimeoutError, match=r"within 0\.02 s"):
            async with semaphore.permit(timeout=0.02):
                pytest.fail("the permit is taken")
        assert (await semaphore.statistics()).waiting == 0


async def test_L13_whoever_is_stopped_settles_at_once_also_when_the_server_does_not_answer() -> None:
    with server() as paused:
        async with Semaphore(paused.url, name=NAME, max_concurrent=0) as semaphore:
            handle = await semaphore.schedule(Crew().worker())
            os.kill(paused.pid, signal.SIGSTOP)
            try:
                handle.cancel()
                started = time.monotonic()
                with pytest.raises(asyncio.CancelledError):
                    await handle
                assert time.monotonic() - started < 2
            finally:
                os.kill(paused.pid, signal.SIGCONT)
            await wait_until(lambda: waiting_is(semaphore, 0), "it has left the line")


@pytest.mark.parametrize("steps", range(0, 40, 2))
async def test_L13_a_stop_that_races_with_the_grant_leaves_no_permit_behind(semaphore_url: str, steps: int) -> None:
    crew = Crew()
    crew.go.set()
    async with Semaphore(semaphore_url, name=NAME, max_concurrent=1) as semaphore:
        async with semaphore.permit():
            stopped = [await semaphore.schedule(crew.worker(number)) for number in range(3)]
        for _ in range(steps):
            await asyncio.sleep(0)
        for handle in stopped:
            handle.cancel()
        await asyncio.gather(*stopped, return_exceptions=True)
        async with semaphore.permit(timeout=5):
            assert (await semaphore.statistics()).held == 1
        now = await semaphore.statistics()
        assert (now.held, now.waiting) == (0, 0)


@pytest.mark.parametrize("steps", range(0, 40, 2))
async def test_L13_a_stop_while_the_permit_is_being_asked_for_leaves_nothing_behind(semaphore_url: str, steps: int) -> None:
    crew = Crew()
    crew.go.set()
    async with Semaphore(semaphore_url, name=NAME, max_concurrent=1) as semaphore:

        async def enter() -> None:
            async with semaphore.permit():
                await semaphore.statistics()

        asking: list[asyncio.Task[Any]] = [asyncio.create_task(enter()) for _ in range(2)]
        work = crew.worker(1)() if steps else crew.worker(1)  # a call that never began can close nothing
        asking.append(asyncio.create_task(semaphore.schedule(work)))
        for _ in range(steps):
            await asyncio.sleep(0)
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        await wait_until(lambda: held_is(semaphore, 0), "nothing is held")
        async with semaphore.permit(timeout=5):
            assert await waiting_is(semaphore, 0)


async def test_L14_statistics_are_a_frozen_account(semaphore_url: str) -> None:
    crew = Crew()
    async with Semaphore(semaphore_url, name=NAME, max_concurrent=1) as semaphore:
        first, second = [await semaphore.schedule(crew.worker(number)) for number in range(2)]
        await wait_until(lambda: waits_for_a_moment(semaphore), "the wait is measured")
        now = await semaphore.statistics(second.id)
        assert (now.limit, now.held, now.waiting, now.position) == (1, 1, 1, 1)
        assert (await semaphore.statistics(first.id)).position is None
        assert (await semaphore.statistics("unknown")).position is None
        with pytest.raises(ValueError, match="frozen"):
            now.held = 0  # pyright: ignore[reportAttributeAccessIssue]
        crew.go.set()
        await asyncio.gather(first, second)
        assert (await semaphore.statistics()).oldest_wait_s is None


async def waits_for_a_moment(semaphore: Semaphore) -> bool:
    return ((await semaphore.statistics()).oldest_wait_s or 0) > 0.01


# L15: late holders --------------------------------------------------------------------------------------------------


async def test_L15_a_late_holder_is_refused_and_told(semaphore_url: str) -> None:
    with holder(semaphore_url) as frozen:
        await frozen.hear("holding")
        async with Semaphore(semaphore_url, name=NAME) as semaphore:
            await frozen.freeze()
            async with semaphore.permit(timeout=20 * LEASE) as permit:
                frozen.send(signal.SIGCONT)
                await asyncio.to_thread(frozen.tell, "leave")
                await frozen.hear("lost")
                await frozen.hear("PermitLost")
                assert await frozen.ended() == 0
                assert (await semaphore.statistics()).held == 1
                assert not permit.lost


async def test_L15_a_permit_that_was_lost_on_the_server_is_told_within_a_renewal(semaphore_url: str, client: redis.Redis) -> None:
    async with Semaphore(semaphore_url, name=NAME, max_concurrent=1, lease=LEASE) as semaphore:

        async def lose_it(error: Exception | None) -> None:
            async with semaphore.permit() as permit:
                client.delete(f"{PREFIX}active", f"{PREFIX}tokens")
                await wait_until(lambda: permit.lost, "the loss is told", LEASE)
                if error:
                    raise error

        with pytest.raises(PermitLost, match="semaphore 'gpu' was lost"):
            await lose_it(None)
        with pytest.raises(KeyError, match="its own error goes first"):
            await lose_it(KeyError("its own error goes first"))


async def test_L15_scheduled_work_keeps_its_value_and_tells_the_loss(semaphore_url: str, client: redis.Redis) -> None:
    crew = Crew()
    async with Semaphore(semaphore_url, name=NAME, lease=LEASE) as semaphore:
        handle = await semaphore.schedule(crew.worker(3))
        client.delete(f"{PREFIX}active", f"{PREFIX}tokens")
        await wait_until(lambda: handle.lost, "the loss is told", LEASE)
        crew.go.set()
        assert await handle == 3
        assert handle.lost


async def test_L15_every_late_renewal_is_refused_however_many_come_at_once(gateway: Gateway, client: redis.Redis) -> None:
    now = 1_000_000
    client.hset(f"{PREFIX}config", mapping={"test_now": now})
    client.hdel(f"{PREFIX}config", "schema")
    await gateway(calls.create(PREFIX, PoolSettings(max_concurrent=60, lease=LEASE).stored(), "test"))
    ids = [f"holder-{number}" for number in range(60)]
    tokens = [(await gateway(calls.permit_acquire(PREFIX, id))).text(0) for id in ids]
    for _ in range(8):
        now += int(milliseconds(LeaseTimes(LEASE).max_step))
        client.hset(f"{PREFIX}config", mapping={"test_now": now})
        await gateway(calls.permit_limit(PREFIX, 0, "test"))
    permits = [Permit(id, token, LeaseTimes(LEASE), 0) for id, token in zip(ids, tokens, strict=True)]
    assert {answer.code for answer in (await gateway(keep(PREFIX, permits))).answers} == {Code.STALE}
    assert client.zcard(f"{PREFIX}active") == client.hlen(f"{PREFIX}tokens") == 0


def test_L15_a_release_that_was_sent_twice_is_no_loss() -> None:
    times = LeaseTimes(LEASE)
    permit = Permit("id", "token", times, 100.0)
    permit.end(Code.STALE, 100.0 + times.trust_window - 0.01)
    assert not permit.lost
    permit = Permit("id", "token", times, 100.0)
    permit.end(Code.STALE, 100.0 + times.trust_window + 0.01)
    assert permit.lost


# L16: renewal, lost messages, and the dead-man's switch -------------------------------------------------------------


async def test_L16_a_name_has_keys_of_its_own(semaphore_url: str) -> None:
    async with (
        Semaphore(semaphore_url, name="a", max_concurrent=1) as one,
        Semaphore(semaphore_url, name="b", max_concurrent=1) as other,
        one.permit(timeout=0),
        other.permit(timeout=0),
    ):
        assert [(await each.statistics()).held for each in (one, other)] == [1, 1]
    with pytest.raises(InvalidArgument, match="pool name"):
        Semaphore(semaphore_url, name="no spaces")


async def test_L16_a_blocked_event_loop_keeps_its_permit_and_its_place(semaphore_url: str) -> None:
    async with Semaphore(semaphore_url, name=NAME, max_concurrent=1, lease=LEASE) as semaphore, semaphore.permit() as permit:
        place = await semaphore.schedule(Crew().worker())
        with holder(semaphore_url):
            await wait_until(lambda: waiting_is(semaphore, 2), "a rival waits")
            time.sleep(3 * LEASE)  # noqa: ASYNC251  the blocked loop is what is tested
            now = await semaphore.statistics(place.id)
            assert (now.held, now.waiting, now.position) == (1, 2, 1)
            assert not permit.lost
        place.cancel()


@contextlib.contextmanager
def deaf(client: redis.Redis) -> Generator[None]:
    """While this lasts, nobody can subscribe, and those who had are cut off."""
    client.acl_setuser("default", enabled=True, commands=["-subscribe"])
    client.client_kill_filter(_type="pubsub")
    try:
        yield
    finally:
        client.acl_setuser("default", enabled=True, commands=["+subscribe"])


def listeners(client: redis.Redis) -> int:
    counts: list[tuple[str, int]] = client.pubsub_numsub(f"{PREFIX}permits")  # type: ignore[assignment]
    return counts[0][1]


async def test_L16_a_lost_subscription_hangs_nobody(semaphore_url: str, client: redis.Redis) -> None:
    crew = Crew()
    async with Semaphore(semaphore_url, name=NAME, max_concurrent=1, lease=LEASE) as semaphore:
        async with semaphore.permit():
            waiting = [await semaphore.schedule(crew.worker(number)) for number in range(3)]
            await wait_until(lambda: listeners(client) == 1, "it listens")
            client.client_kill_filter(_type="pubsub")
        crew.go.set()
        assert await asyncio.gather(*waiting) == [0, 1, 2]
    assert crew.came == [0, 1, 2]


async def test_L16_lost_messages_hang_nobody(semaphore_url: str, client: redis.Redis) -> None:
    crew = Crew()
    crew.go.set()
    async with Semaphore(semaphore_url, name=NAME, max_concurrent=1, lease=LEASE) as semaphore:
        with deaf(client):
            async with semaphore.permit():
                waiting = [await semaphore.schedule(crew.worker(number)) for number in range(3)]
            assert await asyncio.gather(*waiting) == [0, 1, 2]
        assert listeners(client) == 0
    assert crew.came == [0, 1, 2]


NOTES = """
async def main(url, name, log, lease):
    note = probe(log)
    async with Semaphore(url, name=name, max_concurrent=1, lease=float(lease), end_process=True) as semaphore:
        async with semaphore.permit():
            say("holding")
            while True:
                note("runs")
                await asyncio.sleep(0)
"""


@pytest.mark.parametrize("trial", range(3))
async def test_L16_a_process_that_wakes_up_after_its_lease_runs_nothing_more(semaphore_url: str, tmp_path: Path, trial: int) -> None:
    del trial
    log = tmp_path / "log"
    with Process(NOTES, semaphore_url, NAME, str(log), "2") as frozen:
        await frozen.hear("holding")
        await wait_until(lambda: log.exists() and log.stat().st_size > 0, "it runs")
        await frozen.freeze()
        written = log.stat().st_size
        async with Semaphore(semaphore_url, name=NAME) as semaphore, semaphore.permit(timeout=40):
            assert log.stat().st_size == written
            frozen.send(signal.SIGCONT)
            assert await frozen.ended() == -signal.SIGALRM
            assert log.stat().st_size == written


async def test_L16_with_the_switch_a_process_that_is_cut_off_ends_before_its_lease_while_an_idle_one_lives_on() -> None:
    idle = """
async def main(url, name):
    async with Semaphore(url, name=name, end_process=True) as semaphore:
        async with semaphore.permit():
            pass
        say("idle")
        await told("go on")
        async with semaphore.permit():
            say("lives")
"""
    lease = 2.0
    with server() as paused:
        async with Semaphore(paused.url, name=NAME, max_concurrent=2, lease=lease):
            pass
        with Process(idle, paused.url, NAME) as living, holder(paused.url, lease=lease, end_process=True) as cut_off:
            await living.hear("idle")
            await cut_off.hear("holding")
            os.kill(paused.pid, signal.SIGSTOP)
            try:
                started = time.monotonic()
                assert await cut_off.ended() == -signal.SIGALRM
                assert time.monotonic() - started < lease
            finally:
                os.kill(paused.pid, signal.SIGCONT)
            await asyncio.to_thread(living.tell, "go on")
            await living.hear("lives")
            assert await living.ended() == 0


async def test_L16_with_the_switch_a_holder_that_is_renewed_outlives_its_lease(semaphore_url: str) -> None:
    with holder(semaphore_url, lease=3.0, end_process=True) as process:
        await process.hear("holding")
        started = time.monotonic()
        await wait_until(lambda: time.monotonic() > started + 6.5 or process.popen.poll() is not None, "two leases pass")
        await asyncio.to_thread(process.tell, "leave")
        await process.hear("held")
        await process.hear("given back")
        assert await process.ended() == 0


async def test_L16_the_switch_is_refused_where_it_cannot_work(semaphore_url: str) -> None:
    async def elsewhere() -> None:
        async with Semaphore(semaphore_url, name=NAME, end_process=True):
            pytest.fail("opened")

    def theirs(number: int, frame: object) -> None:
        del number, frame

    with pytest.raises(InvalidArgument, match="main thread"):
        await asyncio.to_thread(asyncio.run, elsewhere())
    before = signal.signal(signal.SIGALRM, theirs)
    try:
        with pytest.raises(InvalidArgument, match="which other code uses"):
            await elsewhere()
    finally:
        signal.signal(signal.SIGALRM, before)


SWITCHES = """
from subagents.deadman import DeadMansSwitch

async def main(log, mode):
    note = probe(log)
    early, late = DeadMansSwitch(), DeadMansSwitch()
    late.arm(time.monotonic() + 3600)
    early.arm(time.monotonic() + 1)
    if mode == "disarmed":
        early.disarm()
        child = os.fork()
        if child == 0:
            os._exit(0 if "off" in repr(late) else 1)
        assert os.waitpid(child, 0)[1] == 0
        late.disarm()
        await asyncio.sleep(1.5)
        say(early, late)
        return
    if mode == "passed":
        early.arm(time.monotonic() - 1)
        note("runs")
    say("armed")
    while True:
        note("runs")
"""


async def test_L16_the_switch_ends_a_frozen_process_before_it_runs_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for _ in range(3):
        with Process(SWITCHES, str(log), "armed") as frozen:
            await frozen.hear("armed")
            await frozen.freeze()
            written, since = log.stat().st_size, time.monotonic()
            await wait_until(lambda since=since: time.monotonic() > since + 1.1, "the deadline has passed")  # type: ignore[misc]
            frozen.send(signal.SIGCONT)
            assert await frozen.ended() == -signal.SIGALRM
            assert log.stat().st_size == written


async def test_L16_a_switch_that_is_armed_too_late_ends_the_process_there(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with Process(SWITCHES, str(log), "passed") as process:
        assert await process.ended() == -signal.SIGALRM
        assert log.read_text() == ""


async def test_L16_a_switch_that_is_off_ends_nothing(tmp_path: Path) -> None:
    with Process(SWITCHES, str(tmp_path / "log"), "disarmed") as process:
        await process.hear("<DeadMansSwitch, off> <DeadMansSwitch, off>")
        assert await process.ended() == 0


async def test_an_unreachable_server_is_told_once_to_all_who_asked(tmp_path: Path) -> None:
    with server() as gone:
        semaphore = Semaphore(gone.url, name=NAME)
        await semaphore.start()
    semaphore._gateway.patience = 0.3  # pyright: ignore[reportPrivateUsage] ten seconds are too long for a test
    started = time.monotonic()
    tasks = [asyncio.create_task(semaphore.permit().__aenter__()) for _ in range(20)]
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        assert isinstance(outcome, RedisUnreachable)
    assert time.monotonic() - started < 5
    await semaphore.close()
