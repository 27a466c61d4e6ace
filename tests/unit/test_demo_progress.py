"""What the demo says of itself is read from the history, and can be false."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from subagents import InvalidArgument, PoolEvent, Status
from subagents.cli.demo_progress import LimitChange, Progress, read_limits

ROOT, OTHER = "root", "other"


def event(kind: str, agent: str | None, seq: int = 0, active: int | None = None, limit: int | None = None, **facts: str) -> PoolEvent:
    return PoolEvent(
        cursor="1-0", kind=kind, agent_id=agent, seq=seq, at=datetime.now(UTC), active=active, max_concurrent=limit, facts=facts
    )


def progress_after(*events: PoolEvent) -> Progress:
    progress = Progress(ROOT, "piece", limits=[2])
    for one in (event("created", ROOT, 1, type="parent"), *events):
        progress.take(one)
    return progress


def piece(name: str, seq: int) -> PoolEvent:
    return event("created", name, seq, type="piece", parent=ROOT)


def test_pieces_are_counted_by_their_last_event() -> None:
    progress = progress_after(piece("a", 2), piece("b", 3), event("started", "a", 2), event("completed", "a", 2), event("started", "b", 3))
    assert (progress.pieces, progress.pieces_done, progress.running()) == (2, 1, ["b"])
    assert (progress.count(Status.QUEUED), progress.settled) == (1, 1)


def test_agents_of_another_tree_count_for_nothing() -> None:
    progress = progress_after(event("created", OTHER, 2, type="piece", parent="stranger"), event("admitted", OTHER, 2, 9, 2))
    assert (progress.pieces, progress.peak, progress.within_limit) == (0, 0, True)


def test_admissions_in_spawn_order_are_told_from_others_and_a_second_one_is_none() -> None:
    in_order = [event("admitted", "a", 2, 1, 2), event("admitted", "b", 3, 2, 2), event("admitted", "a", 2, 2, 2)]
    assert progress_after(piece("a", 2), piece("b", 3), *in_order).in_order
    assert not progress_after(piece("a", 2), piece("b", 3), *reversed(in_order[:2])).in_order


def test_an_admission_above_the_limit_is_seen() -> None:
    within = progress_after(piece("a", 2), event("admitted", "a", 2, 2, 2))
    above = progress_after(piece("a", 2), event("resumed", ROOT, 1, 3, 2))
    assert (within.within_limit, within.peak) == (True, 2)
    assert (above.within_limit, above.peak) == (False, 3)


def test_limits_are_kept_as_they_changed() -> None:
    assert progress_after(event("limit", None, 0, 1, 2), event("limit", None, 0, 1, 8)).limits == [2, 8]


def test_limits_on_the_way_are_spread_over_the_work_or_come_by_seconds() -> None:
    assert read_limits(None) == ()
    assert read_limits("2,8") == [LimitChange(2, None, pytest.approx(1 / 3)), LimitChange(8, None, pytest.approx(2 / 3))]  # type: ignore[arg-type]
    [half, timed] = [*read_limits("8"), *read_limits("3@1.5")]
    one_of_two = progress_after(piece("a", 2), piece("b", 3), event("completed", "a", 2))
    assert not half.is_due(progress_after(piece("a", 2), piece("b", 3)), 60)
    assert half.is_due(one_of_two, 0)
    assert (timed.is_due(one_of_two, 1.4), timed.is_due(one_of_two, 1.5)) == (False, True)


@pytest.mark.parametrize("text", ["", "0", "-1", "many", "2,", "2.5", "4@", "4@-1", "1000001"])
def test_limits_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        read_limits(text)
