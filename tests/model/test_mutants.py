"""Breaking the scripts makes the state machines fail: a seeded sample here, all with `python tests/model/mutants.py --all`."""

from __future__ import annotations

import random

import pytest
from mutants import FOLDER, judge_all, listed_survivors
from mutations import mutants_of

SAMPLE, SEED = 25, 2026
NOTICED_AT_LEAST = 16
"""Of the sample. Not every mutant that lives has been looked at yet: the rest are to be killed, or listed with a reason."""


@pytest.mark.timeout(900)
def test_a_sample_of_broken_scripts_is_noticed() -> None:
    every, reasons = mutants_of(FOLDER), listed_survivors()
    sample = random.Random(SEED).sample([mutant for mutant in every if mutant.id not in reasons], SAMPLE)
    alive = [str(verdict.mutant) for verdict in judge_all(sample, 20.0, lambda _: None) if not verdict.killed]
    print(f"{SAMPLE - len(alive)} of {SAMPLE} broken scripts were noticed")
    assert SAMPLE - len(alive) >= NOTICED_AT_LEAST, "\n".join(alive)


def test_listed_survivors_exist_and_have_a_reason() -> None:
    known = {mutant.id for mutant in mutants_of(FOLDER)}
    for survivor, reason in listed_survivors().items():
        assert survivor in known, f"{survivor} is no mutant any more: python tests/model/mutants.py --list"
        assert reason.strip()
