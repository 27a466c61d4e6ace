"""A second, small state machine: the bare semaphore's scripts against its plain model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from expected_keys import DUMP, read_dump
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from plain_permits import Answer, PlainPermits
from plain_records import Token
from pool_bench import START, plain
from redis.client import PubSub

from subagents import keys
from subagents.scripts import calls
from subagents.scripts.calls import Call
from subagents.scripts.gateway import ThreadGateway
from subagents.settings import LeaseTimes, PoolSettings

PREFIX, TAG = "sa:{p}:", "{p}"
LEASE = 12_000
IDS = tuple(f"p{n}" for n in range(5))
some_id = st.sampled_from(IDS)


class PermitBench:
    """One server and one semaphore on it."""

    def __init__(self, gateway: ThreadGateway) -> None:
        self.gateway, self.redis = gateway, gateway.redis
        self.dump = self.redis.register_script(DUMP)
        self.ears: PubSub = self.redis.pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]
        self.ears.subscribe(f"{PREFIX}permits")
        self.ears.get_message(timeout=5)
        self.marks = 0

    def close(self) -> None:
        self.ears.close()

    def messages(self) -> Counter[str]:
        self.marks += 1
        self.redis.publish(f"{PREFIX}permits", f"mark {self.marks}")
        heard: Counter[str] = Counter()
        while True:
            message = cast("dict[str, str] | None", self.ears.get_message(timeout=5))
            assert message, "the server went silent"
            if message["data"] == f"mark {self.marks}":
                return heard
            heard[message["data"]] += 1


def with_texts(answer: list[object]) -> list[object]:
    """An expected answer with the tokens' texts, now that they are known."""
    return [
        item.value if isinstance(item, Token) else with_texts(cast("list[object]", item)) if isinstance(item, list) else item
        for item in answer
    ]


class PermitMachine(RuleBasedStateMachine):
    """Rules over one semaphore."""

    def __init__(self, bench: PermitBench) -> None:
        super().__init__()
        self.bench = bench
        self.known: set[str] = set()
        self.old: list[tuple[str, str]] = []

    @initialize(limit=st.integers(0, 3))
    def begin(self, limit: int) -> None:
        self.bench.redis.flushdb()
        self.bench.messages()
        self.settings = PoolSettings(max_concurrent=limit, lease=LEASE / 1000).stored()
        self.bench.gateway(calls.create(PREFIX, self.settings, "test"))
        self.model = PlainPermits(limit, LEASE, round(LeaseTimes(LEASE / 1000).max_step * 1000), START)
        self.clock_step(0)

    def step(self, call: Call[Any], expected: Callable[[], Answer]) -> None:
        got = self.bench.gateway(replace(call, read=plain))
        want = expected()
        there = {name.removeprefix(PREFIX): key for name, key in read_dump(cast("str", self.bench.dump(keys=[TAG]))).items()}
        tokens = cast("dict[str, str]", there["tokens"].value) if "tokens" in there else {}
        for permit_id, holder in self.model.holders.items():
            if not holder.token.value:
                holder.token.value = tokens.get(permit_id, "")
                assert holder.token.value, f"{permit_id} has no token"
                assert holder.token.value not in self.known, "a token was used again"
                self.known.add(holder.token.value)
                self.old.append((permit_id, holder.token.value))
        told = with_texts(want)
        assert got == told, f"{call.script}{call.args} answered {got}, expected {told}"
        config = cast("dict[str, str]", there.pop("config").value)
        assert config["max_concurrent"] == str(self.model.limit)
        assert int(config.get("clears", "0")) == self.model.clears
        if self.model.changed:
            assert (config["changed_at"], config["changed_by"]) == (str(self.model.changed[0]), self.model.changed[1])
        found = {name: key.value for name, key in there.items()}
        assert found == self.model.expected_keys(), (
            f"after {call.script}{call.args}:\n  server {found}\n  model  {self.model.expected_keys()}"
        )
        heard = self.bench.messages()
        assert heard == self.model.heard, f"heard {heard}, expected {self.model.heard}"
        self.model.heard.clear()

    def token_of(self, permit_id: str) -> str:
        holder = self.model.holders.get(permit_id)
        return holder.token.value if holder else ""

    def acquire(self, permit_id: str) -> None:
        self.step(calls.permit_acquire(PREFIX, permit_id), lambda: self.model.acquire(permit_id))

    def renew(self, permit_id: str, token: str) -> None:
        self.step(calls.permit_renew(PREFIX, permit_id, token), lambda: self.model.renew(permit_id, token))

    def keep(self, *held: tuple[str, str]) -> None:
        flat = (text for pair in held for text in pair)
        call: Call[Any] = Call("permit_keep", PREFIX, (keys.nonce(), *flat), plain)
        self.step(call, lambda: self.model.keep(held))

    def release(self, permit_id: str, token: str) -> None:
        self.step(calls.permit_release(PREFIX, permit_id, token), lambda: self.model.release(permit_id, token))

    def set_limit(self, limit: str) -> None:
        call = calls.permit_limit(PREFIX, 0, "me")
        call = replace(call, args=(call.args[0], limit, "me"))
        self.step(call, lambda: self.model.set_limit(limit, "me"))

    @rule(permit_id=some_id)
    def acquire_one(self, permit_id: str) -> None:
        self.acquire(permit_id)

    @rule()
    def acquire_all(self) -> None:
        for permit_id in IDS:
            self.acquire(permit_id)

    @rule(permit_id=some_id)
    def renew_one(self, permit_id: str) -> None:
        self.renew(permit_id, self.token_of(permit_id))

    @rule(count=st.integers(0, 5), stale=st.booleans())
    def keep_some(self, count: int, stale: bool) -> None:
        """A process keeps all it has in one call, also what it does not know to be granted or lost."""
        held = [(permit_id, self.token_of(permit_id)) for permit_id in IDS[:count]]
        self.keep(*held, *([("p0", ""), *self.old[:2]] if stale else []))

    @rule(permit_id=some_id)
    def renew_as_waiter(self, permit_id: str) -> None:
        self.renew(permit_id, "")

    @rule(permit_id=some_id)
    def release_one(self, permit_id: str) -> None:
        self.release(permit_id, self.token_of(permit_id))

    @rule(permit_id=some_id)
    def leave_line(self, permit_id: str) -> None:
        self.release(permit_id, "")

    @rule(back=st.integers(0, 5), renew=st.booleans())
    def late_owner(self, back: int, renew: bool) -> None:
        """A token of long ago changes nothing."""
        if self.old:
            (self.renew if renew else self.release)(*self.old[-1 - back % len(self.old)])
        self.release("p0", "no-token")

    @rule(budget=st.sampled_from([1, 2, 100]))
    def clear(self, budget: int) -> None:
        self.step(calls.permit_clear(PREFIX, budget), lambda: self.model.clear(budget))

    @rule(limit=st.sampled_from(["0", "1", "2", "4", "1000000", "1000001", "-1", "1.5", "x", "nan"]))
    def change_limit(self, limit: str) -> None:
        self.set_limit(limit)
        if limit == "1000000":
            self.set_limit("1")

    @rule(permit_id=st.sampled_from(["", *IDS]))
    def statistics(self, permit_id: str) -> None:
        self.step(calls.permit_statistics(PREFIX, permit_id), lambda: self.model.statistics(permit_id))

    @rule(forward=st.sampled_from([1, 1999, 2000, 3_600_000, -5000]))
    def clock_step(self, forward: int) -> None:
        self.model.clock += forward
        self.bench.redis.hset(f"{PREFIX}config", "test_now", str(self.model.clock))

    @rule(
        permit_id=some_id,
        extra=st.integers(0, 1),
        end=st.sampled_from(["statistics", "release", "renew", "acquire", "limit", "clear", "keep"]),
    )
    def silence(self, permit_id: str, extra: int, end: str) -> None:
        """A lease's time passes in which only one keeps itself alive; then the first call after it."""
        for _ in range(LEASE // 2000):
            self.renew(permit_id, self.token_of(permit_id))
            self.clock_step(2000)
        self.clock_step(extra)
        if end == "release":
            self.release(permit_id, self.token_of(permit_id))
        elif end == "renew":
            for each in IDS:
                self.renew(each, self.token_of(each))
        elif end == "acquire":
            self.acquire(permit_id)
        elif end == "limit":
            self.set_limit("2")
        elif end == "clear":
            self.clear(100)
        elif end == "keep":
            self.keep(*((each, "") for each in IDS))
        else:
            self.statistics("")

    @rule(crowd=st.integers(11, 14), end=st.sampled_from(["statistics", "release"]), limit=st.sampled_from(["0", "1", "12"]))
    def crowd_dies(self, crowd: int, end: str, limit: str) -> None:
        """More go silent at once than one call reaps: a permit must still not go to the dead."""
        self.set_limit(limit)
        for n in range(crowd):
            self.acquire(f"crowd{n}")
        for _ in range(LEASE // 2000):
            self.clock_step(2000)
            self.keep()
        self.clock_step(1)
        self.set_limit("3")
        if end == "release":
            self.release("nobody", "")
        else:
            self.statistics("crowd1")

    def teardown(self) -> None:
        """Everyone who waits gets a permit in the end, and nothing is left behind."""
