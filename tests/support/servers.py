"""The server that the tests run on: testcontainers where a Docker engine answers, the embedded server otherwise, an external one by URL.

`SUBAGENTS_TEST_SERVER` chooses: `auto` (the default), `embedded`, `container`, or a Redis URL.
"""

from __future__ import annotations

import os
import subprocess
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

from subagents.embedded import server

VARIABLE = "SUBAGENTS_TEST_SERVER"
IMAGE = os.environ.get("SUBAGENTS_TEST_REDIS_IMAGE", "redis:7")


@dataclass(frozen=True, slots=True)
class ServerUnderTest:
    """Where it is and what it is."""

    url: str
    kind: str


@cache
def choice() -> str:
    """What the tests run on: `embedded`, `container`, or a URL."""
    wanted = os.environ.get(VARIABLE, "auto")
    if wanted != "auto":
        return wanted
    return "container" if _engine_answers() else "embedded"


def _engine_answers() -> bool:
    try:
        return subprocess.run(["docker", "image", "inspect", IMAGE], capture_output=True, timeout=10, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


@contextmanager
def running_server() -> Generator[ServerUnderTest]:
    """The chosen server, for the time of the block."""
    match choice():
        case "embedded":
            with server() as embedded:
                yield ServerUnderTest(embedded.url, "embedded server")
        case "container":
            with _container() as url:
                yield ServerUnderTest(url, f"container {IMAGE}")
        case url:
            yield ServerUnderTest(url, "external server")


@contextmanager
def _container() -> Generator[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # testcontainers warns of its own decorators
        os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")
        from testcontainers.redis import RedisContainer  # type: ignore[import-untyped]

        container = RedisContainer(IMAGE)
        container.start()
    try:
        yield f"redis://{container.get_container_host_ip()}:{container.get_exposed_port(6379)}/0"
    finally:
        container.stop()
