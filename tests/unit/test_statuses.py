"""The table of moves is sound, and the scripts read the same one."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from subagents.statuses import MOVES, SETTLED, ErrorKind, Outcome, Status


def lua(path: str) -> str:
    return files("subagents.scripts").joinpath(path).read_text(encoding="utf-8")


def lua_set(name: str) -> set[str]:
    found = re.search(rf"local {name} = {{(.*?)}}", lua("include/record.lua"))
    assert found is not None
    return set(re.findall(r"(\w+) = true", found[1]))


def test_every_status_is_reached_from_the_beginning() -> None:
    reached: set[Status] = set()
    fresh = set(MOVES[None])
    while fresh:
        reached |= fresh
        fresh = {target for source in fresh for target in MOVES.get(source, {})} - reached
    assert reached == set(Status)


def test_nothing_follows_a_terminal_status_and_every_other_goes_on() -> None:
    assert set(MOVES) == {None, *(set(Status) - SETTLED)}
    assert {status for status in Status if status.settled} == SETTLED
    assert all(MOVES[source] for source in MOVES)


def test_every_unsettled_status_can_still_end() -> None:
    for source in set(Status) - SETTLED:
        assert set(MOVES[source]) & SETTLED, source


def test_a_stop_request_is_sticky_in_the_table() -> None:
    assert set(MOVES[Status.STOPPING]) == {Status.STOPPED}
    sources = {source for source, targets in MOVES.items() if Status.STOPPING in targets}
    assert sources == {Status.RUNNING, Status.WAITING}


def test_no_status_moves_to_itself_and_every_move_says_why() -> None:
    for source, targets in MOVES.items():
        assert source not in targets
        assert all(why.strip() for why in targets.values())


@pytest.mark.parametrize(
    ("name", "expected"),
    [("TERMINAL", SETTLED), ("ON_WORKER", {Status.RUNNING, Status.WAITING, Status.STOPPING})],
)
def test_the_scripts_know_the_same_statuses(name: str, expected: set[Status]) -> None:
    assert lua_set(name) == {status.value for status in expected}


def test_the_scripts_write_no_other_status() -> None:
    words = {status.value for status in Status}
    for entry in files("subagents.scripts").iterdir():
        if entry.name.endswith(".lua"):
            written = re.findall(r"'status', '(\w+)'", entry.read_text(encoding="utf-8"))
            assert set(written) <= words, entry.name


def test_what_a_worker_says_of_the_end_is_a_terminal_status_or_handed_back() -> None:
    assert {outcome.value for outcome in Outcome} == {status.value for status in SETTLED} | {"handed_back"}


def test_every_error_kind_of_the_scripts_is_known() -> None:
    kinds = {kind.value for kind in ErrorKind}
    folder = files("subagents.scripts")
    for place in (folder, folder.joinpath("include")):
        for entry in place.iterdir():
            if entry.name.endswith(".lua"):
                assert set(re.findall(r"'error_kind', '(\w+)'", entry.read_text(encoding="utf-8"))) <= kinds, entry.name
