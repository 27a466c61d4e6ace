"""Parents and children: N1 to N4, and case F1."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from subagents import AgentHandle, AgentRecord, ErrorKind, Pool, Status
from support.history import assert_hard_cap, assert_settled_once, history
from support.probe import ProbeLog
from support.waiting import eventually
from support.workers import Workers

FAMILY = str(Path(__file__).parent.parent / "agents" / "family_agents.py")

quiet = pytest.mark.usefixtures("quiet")


@pytest.fixture
async def pool(redis_url: str, pool_name: str) -> AsyncIterator[Pool]:
    """Limit 1, depth 5."""
    async with Pool(redis_url, name=pool_name, max_concurrent=1, max_depth=5, lease=3, by="test") as opened:
        yield opened


@pytest.fixture
async def family(pool: Pool, workers: Workers) -> Pool:
    """The pool with one worker of one slot."""
    await workers.start(agents=FAMILY, slots=1)
    return pool


async def said_child(parent: AgentHandle) -> AgentHandle:
    """The child that the parent told of."""

    async def told() -> str | None:
        return cast("str | None", ((await parent.get()).progress or {}).get("id"))

    return parent._pool.handle(cast("str", await eventually(told, "the parent told of its child")))  # pyright: ignore[reportPrivateUsage]


async def reaches(handle: AgentHandle, status: Status) -> AgentRecord:
    async def there() -> AgentRecord | None:
        record = await handle.get()
        return record if record.status is status else None

    return cast("AgentRecord", await eventually(there, f"{handle} is {status}"))


# N1 and F1 ---------------------------------------------------------------------------------------------------------


@quiet
async def test_N1_case_F1_a_chain_of_depth_5_completes_at_limit_1_and_one_slot(family: Pool, probe: ProbeLog) -> None:
    record = await asyncio.wait_for(family.run("chain", {"depth": 5}), 30)
    assert (record.status, record.result) == (Status.COMPLETED, 5)
    assert probe.peak() == 1
    assert len(set(probe.started())) == 6
    events = await history(family)
    assert_hard_cap(events)
    assert_settled_once(events)
    assert sum(event.kind == "waiting" for event in events) == sum(event.kind == "resumed" for event in events) == 5


@quiet
async def test_N1_case_F1_three_parents_each_await_a_child_at_limit_3(pool: Pool, workers: Workers, probe: ProbeLog) -> None:
    await pool.set_max_concurrent(3)
    await workers.start(agents=FAMILY, processes=2, slots=3)
    parents = [await pool.spawn("parent", {"seconds": 0.2}) for _ in range(3)]
    others = [await pool.spawn("nap", {"seconds": 0.1}) for _ in range(6)]
    records = await asyncio.wait_for(asyncio.gather(*(handle.wait() for handle in (*parents, *others))), 30)
    assert {record.status for record in records} == {Status.COMPLETED}
    assert {record.result["status"] for record in records[:3]} == {"completed"}
    assert probe.peak() <= 3
    assert_hard_cap(await history(pool))


@quiet
async def test_N1_many_chains_at_once_never_deadlock(pool: Pool, workers: Workers, probe: ProbeLog) -> None:
    await pool.set_max_concurrent(2)
    await workers.start(agents=FAMILY, processes=2, slots=1)
    records = await asyncio.wait_for(asyncio.gather(*(pool.run("chain", {"depth": 3}) for _ in range(10))), 60)
    assert [(record.status, record.result) for record in records] == [(Status.COMPLETED, 3)] * 10
    assert probe.peak() <= 2


@quiet
async def test_N1_wait_all_lends_once_for_all_children(family: Pool, probe: ProbeLog) -> None:
    record = await family.run("parent_of_many", {"count": 5, "seconds": 0.05})
    assert record.status is Status.COMPLETED
    assert record.result["statuses"] == ["completed"] * 5
    assert probe.started()[1:-1] == record.result["children"]
    assert probe.peak() == 1
    assert [event.kind for event in await history(family, "waiting", "resumed")] == ["waiting", "resumed"]


@quiet
async def test_N1_a_failed_child_is_an_ordinary_answer(family: Pool) -> None:
    record = await family.run("parent", {"child": "fail", "options": {}, "seconds": 0})
    assert (record.status, record.result["status"]) == (Status.COMPLETED, "error")


@quiet
@pytest.mark.parametrize("own_timeout", [True, False], ids=["wait(timeout)", "asyncio.timeout"])
async def test_N1_a_time_out_bounds_the_wait_and_the_permit_is_back_before_the_code_goes_on(
    family: Pool, probe: ProbeLog, own_timeout: bool
) -> None:
    """The child has the only permit when the time is over: the parent's code goes on when the child is out, not before."""
    record = await family.run("impatient", {"seconds": 1.5, "patience": 0.4, "own_timeout": own_timeout})
    assert record.status is Status.COMPLETED
    assert record.result == ("running" if own_timeout else "timed out")
    assert probe.peak() == 1
    assert await family.wait_idle(timeout=10)


@quiet
async def test_N1_a_time_out_while_the_permit_comes_back_does_not_let_the_code_go_on_without(family: Pool, probe: ProbeLog) -> None:
    """The child is out in time, but somebody else has the permit when the parent's own time-out fires."""
    parent = await family.spawn("impatient", {"seconds": 0.5, "patience": 0.9})
    await reaches(parent, Status.WAITING)
    between = await family.spawn("nap", {"seconds": 1.5})
    record = await parent.wait(20)
    assert (record.status, record.result) == (Status.COMPLETED, "timed out")
    assert (await between.wait(1)).status is Status.COMPLETED
    assert probe.peak() == 1


@quiet
async def test_N1_a_parent_takes_its_permit_back_at_its_own_place(family: Pool, probe: ProbeLog) -> None:
    parent = await family.spawn("parent", {"seconds": 0.3})
    child = await said_child(parent)
    later = [await family.spawn("nap", {"seconds": 0.3}) for _ in range(3)]
    assert (await parent.wait(20)).status is Status.COMPLETED
    for handle in later:
        await handle.wait(20)
    order = [mark.agent_id for mark in probe.marks("begin")]
    assert order == [parent.id, child.id, later[0].id, parent.id, later[1].id, later[2].id]
    assert probe.peak() == 1


@quiet
async def test_N1_a_side_task_may_not_wait_for_a_child(family: Pool) -> None:
    record = await family.run("side_waits")
    assert record.status is Status.COMPLETED
    assert set(record.result) == {"wait", "result", "wait_all"}
    assert all("main task" in said and "ctx.wait_all" in said for said in record.result.values())
    assert not await history(family, "waiting")
    assert await family.wait_idle(timeout=10)


@quiet
async def test_N1_a_run_through_the_pool_inside_an_agent_lends_too(family: Pool, probe: ProbeLog) -> None:
    """`pool.spawn` inside an agent's code is a child's spawn (N2), so `pool.run` there must not wait with the permit in hand."""
    record = await asyncio.wait_for(family.run("pool_runner", {"seconds": 0.1}), 20)
    assert (record.status, record.result) == (Status.COMPLETED, "True completed")
    assert probe.peak() == 1


@quiet
async def test_N1_a_waiting_parent_that_is_stopped_is_cancelled_at_once_and_cleans_up_without_a_permit(
    family: Pool, probe: ProbeLog
) -> None:
    parent = await family.spawn("cleaner", {"seconds": 0.6})
    child = await said_child(parent)
    await reaches(child, Status.RUNNING)
    await parent.abort()
    await eventually(lambda: probe.marks("cleaning"), "its clean-up has begun")
    assert (await parent.get()).status is Status.STOPPING
    assert (await child.wait(10)).status is Status.STOPPED
    assert (await family.stats()).active == 0
    assert (await family.run("nap")).status is Status.COMPLETED, "others run meanwhile"
    assert (await parent.wait(10)).status is Status.STOPPED
    assert probe.marks("clean")
    mine = [event.kind for event in await history(family) if event.agent_id == parent.id]
    assert mine == ["created", "admitted", "started", "waiting", "stopping", "stopped"], "no resumed: so its clean-up had no permit"


@quiet
async def test_N1_a_waiting_parents_timeout_and_lost_worker(pool: Pool, workers: Workers) -> None:
    worker = await workers.start(agents=FAMILY, slots=1)
    timed = await pool.run("parent", {"seconds": 60}, timeout=0.6)
    assert (timed.status, timed.error_kind) == (Status.ERROR, ErrorKind.TIMEOUT)
    await pool.interrupt()
    parent = await pool.spawn("parent", {"seconds": 60})
    child = await said_child(parent)
    await reaches(child, Status.RUNNING)
    worker.kill_everything()
    await worker.gone()
    await workers.start(agents=FAMILY, slots=1)
    assert (await parent.wait(15)).error_kind is ErrorKind.WORKER_LOST
    assert (await child.wait(15)).status in (Status.ERROR, Status.STOPPED)


@quiet
async def test_N1_a_parent_waits_longer_than_its_lease(family: Pool, probe: ProbeLog) -> None:
    record = await family.run("parent", {"seconds": 4.5})
    assert (record.status, record.result["status"]) == (Status.COMPLETED, "completed")
    assert probe.peak() == 1


@quiet
async def test_N1_a_pause_holds_a_returning_parent(family: Pool, probe: ProbeLog) -> None:
    parent = await family.spawn("parent", {"seconds": 0.6})
    child = await said_child(parent)
    await reaches(child, Status.RUNNING)
    await family.pause()
    assert (await child.wait(10)).status is Status.COMPLETED
    assert (await parent.wait(1.2)).status is Status.WAITING
    assert probe.starts_of(parent.id) == 1
    await family.unpause()
    assert (await parent.wait(10)).status is Status.COMPLETED


# N2 ----------------------------------------------------------------------------------------------------------------


@quiet
async def test_N2_stopping_a_parent_stops_every_descendant(pool: Pool, workers: Workers) -> None:
    await pool.set_max_concurrent(3)
    await workers.start(agents=FAMILY, processes=2)
    top = await pool.spawn("parent", {"child": "parent", "seconds": 60})
    middle = await said_child(top)
    bottom = await said_child(middle)
    bystander = await pool.spawn("nap", {"seconds": 60})
    await reaches(bottom, Status.RUNNING)
    await top.abort("enough")
    records = [await handle.wait(10) for handle in (top, middle, bottom)]
    assert [record.status for record in records] == [Status.STOPPED] * 3
    assert [record.stop_reason for record in records] == ["enough"] * 3
    assert (await bystander.get()).status is Status.RUNNING
    await bystander.abort()
    await bystander.wait(10)
    assert_settled_once(await history(pool))


@quiet
async def test_N2_stopping_a_parent_stops_queued_children_too(family: Pool, probe: ProbeLog) -> None:
    parent = await family.spawn("parent_of_many", {"count": 5, "seconds": 60})
    await reaches(parent, Status.WAITING)
    await eventually(lambda: len(set(probe.started())) == 2, "the first child runs")
    await parent.abort()
    assert (await parent.wait(10)).status is Status.STOPPED
    assert await family.wait_idle(timeout=10)
    assert {record.status for record in await family.list(tree=parent.id)} == {Status.STOPPED}
    assert len(await family.list(tree=parent.id)) == 6
    assert len(set(probe.started())) == 2


@quiet
async def test_N2_a_stopping_parent_may_not_spawn(family: Pool, probe: ProbeLog) -> None:
    parent = await family.spawn("last_wish")
    await eventually(lambda: probe.started() == [parent.id], "it runs")
    await parent.abort()
    record = await parent.wait(10)
    assert (record.status, record.result) == (Status.STOPPED, "refused: True")
    assert [event.agent_id for event in await history(family, "created")] == [parent.id]


@quiet
async def test_N2_a_parent_hit_by_an_interrupt_may_not_spawn(family: Pool, probe: ProbeLog) -> None:
    parent = await family.spawn("last_wish", scopes=["s"])
    await eventually(lambda: probe.started() == [parent.id], "it runs")
    await family.interrupt("s")
    assert (await parent.wait(10)).result == "refused: True"


@quiet
async def test_N2_a_child_outlives_a_parent_that_simply_ends(family: Pool) -> None:
    parent = await family.run("leaver")
    assert parent.status is Status.COMPLETED
    assert (await family.handle(parent.result).wait(10)).status is Status.COMPLETED


# N3 and N4 ---------------------------------------------------------------------------------------------------------


@quiet
async def test_N3_beyond_max_depth_a_spawn_is_refused_with_the_path(family: Pool) -> None:
    record = await asyncio.wait_for(family.run("digger"), 30)
    assert record.status is Status.COMPLETED
    depth, *path = record.result
    assert depth == "5"
    tree = sorted(await family.list(tree=record.id), key=lambda one: one.depth)
    assert path == [one.id for one in tree]
    assert [one.depth for one in tree] == list(range(6))


@quiet
async def test_N4_parent_depth_and_scopes_are_inherited_and_the_tree_can_be_listed(family: Pool) -> None:
    options = {"scopes": ["own"], "on_interrupt": "stop"}
    top = await family.spawn("parent", {"child": "nap", "options": options}, scopes=["session", "tenant"], on_interrupt="survive")
    assert (await top.wait(20)).status is Status.COMPLETED
    child = await said_child(top)
    record = await child.get()
    assert (record.parent_id, record.depth) == (top.id, 1)
    assert set(record.scopes) == {"session", "tenant", "own"}
    assert [one.id for one in await family.list(tree=top.id)] == [child.id, top.id]
    assert [one.id for one in await family.list(scope="session")] == [child.id, top.id]
    assert [one.id for one in await family.list(scope="own")] == [child.id]


@quiet
async def test_N4_the_tree_of_any_agent_is_itself_and_what_hangs_below(family: Pool) -> None:
    top = await family.run("digger")
    tree = sorted(await family.list(tree=top.id), key=lambda one: one.depth)
    assert [one.id for one in await family.list(tree=tree[3].id)] == [one.id for one in reversed(tree[3:])]
    lone = await family.run("nap")
    assert [one.id for one in await family.list(tree=lone.id)] == [lone.id]
    assert len(await family.list(tree="0" * 20)) == 0


@quiet
async def test_N4_children_of_a_survivor_survive_an_interrupt(pool: Pool, workers: Workers) -> None:
    await pool.set_max_concurrent(3)
    await workers.start(agents=FAMILY)
    top = await pool.spawn("parent", {"seconds": 1.0}, scopes=["s"], on_interrupt="survive")
    child = await said_child(top)
    await reaches(child, Status.RUNNING)
    report = await pool.interrupt("s", wait=2)
    assert (report.complete, len(report.agents)) == (True, 0)
    assert (await top.wait(10)).result == {"child": child.id, "status": "completed"}
