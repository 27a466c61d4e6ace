"""The scripts against the plain model: 200 examples in CI, 2 000 with `HYPOTHESIS_PROFILE=nightly`."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings
from permit_machine import PermitBench, PermitMachine
from pool_bench import SLOW_IS_FINE, Bench, private_gateway, run_machine
from pool_machine import PoolMachine

from subagents.scripts.gateway import ThreadGateway

PATIENT = settings(deadline=None, database=None, suppress_health_check=SLOW_IS_FINE, print_blob=True)
PROFILES = {
    "ci": settings(PATIENT, max_examples=200, stateful_step_count=30, derandomize=True),
    "nightly": settings(PATIENT, max_examples=2_000, stateful_step_count=40),
}
PROFILE = PROFILES[os.environ.get("HYPOTHESIS_PROFILE", "ci")]

pytestmark = pytest.mark.timeout(6 * 3600)


@pytest.fixture
def gateway() -> Iterator[ThreadGateway]:
    with private_gateway() as opened:
        yield opened


def test_pool_scripts_do_what_the_plain_model_says(gateway: ThreadGateway) -> None:
    bench = Bench(gateway)
    try:
        run_machine(lambda: PoolMachine(bench), PROFILE)
    finally:
        bench.close()


def test_permit_scripts_do_what_the_plain_model_says(gateway: ThreadGateway) -> None:
    bench = PermitBench(gateway)
    try:
        run_machine(lambda: PermitMachine(bench), PROFILE)
    finally:
        bench.close()
