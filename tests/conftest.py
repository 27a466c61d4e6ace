"""Fixtures: one real server for the whole run, a pool of its own for each test, worker processes, and the check that nothing leaks."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path

import pytest

from subagents import Pool
from support.leaks import assert_quiet
from support.probe import ProbeLog
from support.servers import VARIABLE, ServerUnderTest, choice, running_server
from support.workers import Workers

os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(Path(__file__).parent), os.environ.get("PYTHONPATH"))))


def pytest_report_header() -> str:
    return f"server under test: {choice()} (choose with {VARIABLE})"


@pytest.fixture(scope="session")
def server_under_test() -> Iterator[ServerUnderTest]:
    with running_server() as server:
        yield server


@pytest.fixture
def redis_url(server_under_test: ServerUnderTest) -> str:
    return server_under_test.url


@pytest.fixture
def pool_name() -> str:
    return f"test-{secrets.token_hex(4)}"


@pytest.fixture
async def pool(redis_url: str, pool_name: str) -> AsyncIterator[Pool]:
    """A pool with limit 4 and a lease of 3 s; at the end of the test whatever is left is stopped, and nothing may have leaked."""
    async with Pool(redis_url, name=pool_name, max_concurrent=4, lease=3, by="test") as opened:
        yield opened


@pytest.fixture
async def workers(pool: Pool, redis_url: str, tmp_path: Path) -> AsyncIterator[Workers]:
    started = Workers(pool, redis_url, tmp_path, tmp_path / "probe.log")
    yield started
    await started.stop()


@pytest.fixture
async def quiet(pool: Pool) -> AsyncIterator[None]:
    """Checks, after the test, that everything has settled and no key is without bound (invariant 9)."""
    yield
    await assert_quiet(pool)


@pytest.fixture
def probe(tmp_path: Path) -> ProbeLog:
    return ProbeLog(tmp_path / "probe.log")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    started: object = getattr(item, "funcargs", {}).get("workers")
    if isinstance(started, Workers) and report.when == "call" and report.failed:
        report.sections.append(("worker logs", started.logs()))
    return report
