"""`worker`, `scheduler`, `up` and `demo`: what they start, and that they end all of it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from subagents import Pool
from support.command_line import (
    TERMINAL_WIDTH,
    CommandLine,
    alive,
    children_of,
    command_line_of,
    on_a_terminal,
)
from support.waiting import eventually


@pytest.fixture
async def subagents(redis_url: str, pool_name: str) -> AsyncIterator[CommandLine]:
    async with CommandLine(redis_url, pool_name) as started:
        yield started


# Serving -------------------------------------------------------------------------------------------------------------

AGENT_MODULE = """
from subagents_worker import AgentContext, agent

@agent("greet")
async def greet(ctx: AgentContext, name: str) -> str:
    return f"hello {name}"
"""


async def test_worker_becomes_the_worker_without_showing_the_url(subagents: CommandLine, pool: Pool, tmp_path: Path) -> None:
    module = tmp_path / "greeting_agents.py"
    module.write_text(AGENT_MODULE)
    worker = await subagents.start("worker", str(module), "--slots", "3", "--drain-timeout", "1", "--redis", subagents.url)
    assert await pool.run("greet", {"name": "you"}) is not None
    argv = command_line_of(worker.process.pid)
    assert argv[1:3] == ["-m", "subagents_worker"]
    assert subagents.url not in argv
    worker.process.terminate()
    assert (await worker.ended()).code == 0


async def test_up_runs_everything_and_ctrl_c_ends_everything_in_order(subagents: CommandLine, tmp_path: Path) -> None:
    module = tmp_path / "greeting_agents.py"
    module.write_text(AGENT_MODULE)
    command = await subagents.start("up", str(module), "--json", "--max-concurrent", "2", SUBAGENTS_REDIS_URL="")
    await command.says("\n")
    url = json.loads(command.said)["redis"]
    here = CommandLine(url, subagents.pool)
    greeted = await here("spawn", "greet", '{"name": "you"}', "--wait")
    assert (greeted.code, greeted.data) == (0, "hello you")
    assert (await here("limit")).out == "2\n"
    started = children_of(command.process.pid)
    assert len(started) >= 5  # the warden and its server, the leash, the worker's supervisor and process
    ended = await command.interrupted()
    assert (ended.code, "Traceback" in ended.err) == (0, False)
    assert not any(alive(pid) for pid in started)


async def test_up_that_is_killed_leaves_nothing_behind(subagents: CommandLine, tmp_path: Path) -> None:
    module = tmp_path / "greeting_agents.py"
    module.write_text(AGENT_MODULE)
    command = await subagents.start("up", str(module), "--json", "--drain-timeout", "1", "--grace", "1", SUBAGENTS_REDIS_URL="")
    await command.says("\n")
    assert (await CommandLine(json.loads(command.said)["redis"], subagents.pool)("spawn", "greet", '{"name": "you"}', "--wait")).code == 0
    started = children_of(command.process.pid)
    command.process.kill()
    await eventually(lambda: not any(alive(pid) for pid in started), "everything that it started has ended", 30)


async def test_up_with_a_module_that_does_not_import_says_so_and_ends(subagents: CommandLine) -> None:
    ended = await subagents("up", "no_such_module", SUBAGENTS_REDIS_URL="")
    assert ended.code == 2
    assert "no_such_module" in ended.err.splitlines()[-1]
    assert "Traceback" not in ended.err


async def test_a_scheduler_says_that_it_runs_and_ends_on_ctrl_c(subagents: CommandLine, pool: Pool) -> None:
    command = await subagents.start("scheduler", "--max-concurrent", "9")
    await command.says("scheduler of pool")
    ended = await command.interrupted()
    assert (ended.code, "Traceback" in ended.err) == (0, False)
    assert (await pool.stats()).max_concurrent == 4  # G3: the stored limit stands


# The demo ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A folder of Python files that take some hundredths of a second each."""
    for number in range(24):
        (tmp_path / f"module_{number:02}.py").write_text(f"def function_{number}(x):\n    return x if x else {number}\n" * 1000)
    return tmp_path


async def test_the_demo_measures_for_real_under_a_limit_that_changes(subagents: CommandLine, sources: Path) -> None:
    ended = await subagents("demo", str(sources), "--limit", "2,6", "--json", SUBAGENTS_REDIS_URL="")
    assert (ended.code, ended.err) == (0, "")
    assert ended.data["agents"] == 26  # the parent, one for each file, and the one that writes the summary
    assert ended.data["limits"] == [4, 2, 6]
    assert (ended.data["within_limit"], ended.data["in_order"]) == (True, True)
    assert 1 < ended.data["peak"] <= 6
    assert (ended.data["summary"]["files"], ended.data["summary"]["functions"]) == (24, 24 * 1000)


async def test_the_demo_tells_its_progress_and_prints_the_table(subagents: CommandLine, sources: Path) -> None:
    ended = await subagents("demo", str(sources), "--files", "5", SUBAGENTS_REDIS_URL="")
    assert ended.code == 0
    assert "5 files" in ended.out
    assert re.search(r"^7 agents in .* at most \d at once \(limit 4\), started in spawn order$", ended.out, re.MULTILINE), ended.out
    assert "workers are starting" in ended.err


async def test_the_demo_draws_on_a_terminal(subagents: CommandLine, sources: Path) -> None:
    screen = await on_a_terminal(subagents, "demo", str(sources))
    assert "of 24 files" in screen
    assert "26 agents in" in screen
    assert max(len(line) for line in screen.splitlines()) <= TERMINAL_WIDTH


async def test_ctrl_c_in_the_demo_interrupts_it_and_prints_the_report(subagents: CommandLine) -> None:
    command = await subagents.start("demo", SUBAGENTS_REDIS_URL="")
    assert command.process.stderr is not None
    told = b""
    while b"1 waiting" not in told:
        chunk = await asyncio.wait_for(command.process.stderr.read(4096), 60)
        assert chunk, told
        told += chunk
    started = children_of(command.process.pid)
    ended = await command.interrupted()
    assert ended.code == 130
    assert "Traceback" not in ended.err
    assert re.search(r"Interrupt of scope demo-[0-9a-f]+: complete after .* queued stopped, \d+ running", ended.out), ended.out
    assert started
    assert not any(alive(pid) for pid in started)
