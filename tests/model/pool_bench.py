"""Runs one step on the server and on the plain model, and compares everything that can be seen of them afterwards."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

from expected_keys import DUMP, Key, expected_keys, read_dump
from history_check import History, check_history
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test
from plain_pool import PlainPool
from plain_records import Event, Job, PoolFacts, Token
from plain_runs import Answer
from redis import Redis
from redis.client import PubSub

from subagents.embedded import server
from subagents.scripts import calls, loader
from subagents.scripts.calls import Call
from subagents.scripts.gateway import ThreadGateway
from subagents.scripts.replies import Reply
from subagents.settings import PoolSettings

PREFIX, TAG = "sa:{m}:", "{m}"
START = 1_700_000_000_000
SLOW_IS_FINE = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
SLACK = 300_000  # ms of real time that an example may take; TTLs run in real time
OBSERVE = f"""
local dump = (function() {DUMP} end)()
local news = redis.call('XRANGE', KEYS[2], '(' .. ARGV[1], '+')
redis.call('PUBLISH', KEYS[2] .. ':observed', ARGV[2])
return {{dump, news}}
"""


T = TypeVar("T")
Observation = tuple[str, list[tuple[str, list[str]]]]


@contextmanager
def private_gateway(socket_timeout: float = 5.0) -> Generator[ThreadGateway]:
    """A gateway to a real server that nobody else uses."""
    with (
        server(extra=["--appendonly", "no"]) as private,
        ThreadGateway(private.url, socket_timeout=socket_timeout) as gateway,
    ):
        yield gateway


def run_machine(machine: Callable[[], RuleBasedStateMachine], chosen: settings) -> None:
    """Run a state machine that is made by a function; hypothesis asks for nothing more, but its annotation does."""
    run_state_machine_as_test(cast("type[RuleBasedStateMachine]", machine), settings=chosen)


def plain(answer: Reply) -> Answer:
    return [str(answer.code), *answer.rest]


@dataclass
class Bench:
    """One server, one pool on it, and the model beside it. `begin` makes both anew."""

    gateway: ThreadGateway
    facts: PoolFacts = field(default_factory=PoolFacts)
    steps: int = 0
    rule: str = ""  # the rule at work, and how often each script was called by each rule
    reached: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    broken: bool = True  # the last step did not end as expected: nothing after it says anything
    model: PlainPool = field(init=False)
    keys: dict[str, Key] = field(init=False)
    history: list[dict[str, str]] = field(init=False)
    aside: set[str] = field(init=False)

    def __post_init__(self) -> None:
        self.redis: Redis = self.gateway.redis
        for name in loader.names():
            self.redis.script_load(loader.load(name).source)
        self._observe = self.redis.register_script(OBSERVE)
        self.redis.script_load(OBSERVE)
        self._ears: PubSub = self.redis.pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]
        self._ears.psubscribe(f"{PREFIX}*")
        self._ears.get_message(timeout=5)  # the confirmation, which reads as None

    def close(self) -> None:
        self._ears.close()

    def begin(self, limit: int) -> None:
        self.redis.flushdb()
        self.steps += 1
        self.redis.publish(f"{PREFIX}events:observed", str(self.steps))
        for _ in self._messages():
            pass  # what an example that failed has left behind
        seconds, facts = 1000, self.facts
        made = PoolSettings(
            max_concurrent=limit,
            lease=facts.lease / seconds,
            max_depth=facts.max_depth,
            max_bypass=facts.max_bypass,
            max_queued=facts.max_queued,
            keep_settled=facts.keep_settled / seconds,
            keep_consumed=facts.keep_consumed / seconds,
            keep_tombstone=facts.keep_tombstone / seconds,
        )
        self.settings = made.stored()
        self.gateway(calls.create(PREFIX, self.settings, "test"))
        self.model = PlainPool(facts, limit, START)
        self.history, self._known_tokens, self._last_event = [], set[str](), "0"
        self.first_limit = limit
        self.survivors: set[str] = set()
        self.set_clock(START)

    def set_clock(self, at: int) -> None:
        self.model.clock = at
        self.redis.hset(f"{PREFIX}config", "test_now", str(at))

    # One step

    def ask(self, call: Call[T]) -> T:
        """Send a call whose answer the caller compares."""
        self.reached[call.script][self.rule] += 1
        return self.gateway(call)

    def step(self, call: Call[Any], expected: Callable[[], Answer]) -> Answer:
        """Send the call, ask the model, compare the answers and the whole state."""
        self.steps += 1
        self.broken = True
        script = loader.load(call.script)
        self.reached[call.script][self.rule] += 1
        arguments = (script.sha, 1, call.prefix, *call.args)
        raw, seen = self._sent_together(arguments)
        if isinstance(raw, Exception):
            raise raw
        got, want = plain(Reply.of(raw)), expected()
        assert shaped(got) == shaped(want), f"{call.script}{call.args} answered {shaped(got)}, expected {shaped(want)}"
        self._compare(f"{call.script}{call.args}", seen)
        return got

    def _sent_together(self, arguments: tuple[Any, ...]) -> tuple[object, Observation]:
        """A call and the look at what it left behind, in one round trip."""
        both = self.redis.pipeline(transaction=False)
        both.evalsha(*arguments)
        both.evalsha(str(self._observe.sha), 2, TAG, f"{PREFIX}events", self._last_event, str(self.steps))
        raw, seen = both.execute(raise_on_error=False)
        if isinstance(seen, Exception):
            raise seen
        return raw, seen

    def compare(self, step: str) -> None:
        """Compare after something that was done by hand."""
        self.broken = True
        seen = self._observe(keys=[TAG, f"{PREFIX}events"], args=[self._last_event, str(self.steps)])
        self._compare(step, cast("Observation", seen))

    def _compare(self, step: str, seen: Observation) -> None:
        dump, news = seen
        self.keys = read_dump(dump)
        self._learn_tokens()
        self._compare_keys(step)
        self._compare_events(step, news)
        self._compare_messages(step)
        self._conserve()
        for noted in (self.model.events, self.model.heard, self.model.told):
            noted.clear()
        self.broken = False

    def _learn_tokens(self) -> None:
        for agent in self.model.agents.values():
            if agent.token and not agent.token.value:
                record = cast("dict[str, str]", self.keys[f"{PREFIX}agent:{agent.id}"].value)
                agent.token.value = record.get("token", "")
                assert agent.token.value, f"{agent.id} has no token"
                assert agent.token.value not in self._known_tokens, "a token was used again"
                self._known_tokens.add(agent.token.value)

    def _compare_keys(self, step: str) -> None:
        want = expected_keys(self.model, PREFIX, self.settings)
        got = self.keys
        self._loosen(got)
        if {name: key.value for name, key in got.items()} != {name: key.value for name, key in want.items()}:
            wrong = [n for n in sorted({*got, *want}) if n not in got or n not in want or got[n].value != want[n].value]
            shown = "\n".join(f"  {n}\n    server {_value(got, n)}\n    model  {_value(want, n)}" for n in wrong)
            raise AssertionError(f"after {step}:\n{shown}")
        for name, key in got.items():
            bound = want[name].ttl
            fits = key.ttl is None if bound is None else key.ttl is not None and bound - SLACK < key.ttl <= bound
            assert fits, f"after {step}: {name} has TTL {key.ttl}, expected {bound}"

    def _loosen(self, got: dict[str, Key]) -> None:
        """The few fields that are bounds rather than values, or not the model's to know."""
        config = cast("dict[str, str]", got[f"{PREFIX}config"].value)
        if self.model.changed_at is None:
            config.pop("changed_at", None)
        for interrupt in self.model.open_interrupts():
            name = f"{PREFIX}interrupt:{interrupt.id}"
            bound = cast("dict[str, str]", got[name].value).pop("queued_stopped", "0")
            assert int(bound) >= len(interrupt.queued), f"{interrupt.id} promises too little: {bound}"
        self._check_aside(got)

    def _check_aside(self, got: dict[str, Key]) -> None:
        """Lanes set aside by an interrupt of everyone name agents that are out of the line; the server clears them when it likes."""
        named = set(cast("list[str]", got.pop(f"{PREFIX}aside", Key([])).value))
        lanes = {name.removeprefix(PREFIX): got.pop(name) for name in [*got] if name.startswith(f"{PREFIX}aside:")}
        assert named == set(lanes), f"set aside: {named}, there are {set(lanes)}"
        for lane in lanes.values():
            known = [self.model.agents.get(agent_id) for agent_id in cast("dict[str, float]", lane.value)]
            assert not any(agent and agent.in_line for agent in known), f"set aside, but in line: {lane}"
        self.aside = named

    def _compare_events(self, step: str, news: list[tuple[str, list[str]]]) -> None:
        found: list[Event] = []
        for cursor, flat in news:
            self._last_event = cursor
            entry = dict(zip(flat[::2], flat[1::2], strict=True))
            self.history.append(entry)
            rest = {name: fact for name, fact in entry.items() if name not in ("kind", "agent_id", "seq")}
            found.append(Event(entry["kind"], entry["agent_id"], int(entry["seq"]), dict(rest)))
        told = [replace(e, facts={n: f.value if isinstance(f, Token) else f for n, f in e.facts.items()}) for e in self.model.events]
        for agent_id in {e.agent_id for e in (*found, *told)}:
            got, want = ([e for e in events if e.agent_id == agent_id] for events in (found, told))
            assert got == want, f"after {step}: events of {agent_id}\n  server {got}\n  model  {want}"
        order = [[e.agent_id for e in events if e.kind in ("admitted", "resumed")] for events in (found, told)]
        assert order[0] == order[1], f"after {step}: admitted in the order {order[0]}, expected {order[1]}"

    def _compare_messages(self, step: str) -> None:
        heard: Counter[tuple[str, str]] = Counter()
        told: dict[str, set[str]] = {}
        for channel, data in self._messages():
            if channel.startswith("client:"):
                told.setdefault(channel.removeprefix("client:"), set()).update(data.split(","))
            else:
                heard[channel, data] += 1
        assert heard == self.model.heard, f"after {step}: heard {heard}, expected {self.model.heard}"
        assert told == self.model.told, f"after {step}: told {told}, expected {self.model.told}"

    def _messages(self) -> Iterator[tuple[str, str]]:
        """Everything published up to the newest observation."""
        while True:
            message = cast("dict[str, str] | None", self._ears.get_message(timeout=5))
            assert message, "the server went silent"
            channel, data = message["channel"].removeprefix(PREFIX), message["data"]
            if channel != "events:observed":
                yield channel, data
            elif data == str(self.steps):
                return

    def _conserve(self) -> None:
        """Invariant 4 on the server's own keys: every unsettled agent that no interrupt hit stands in exactly one place."""
        places = Counter[str]()
        for name, key in self.keys.items():
            short = name.removeprefix(PREFIX)
            if (short.startswith("pending:") and short != "pending:@") or short in ("active", "waiting", "bypass"):
                places.update(cast("dict[str, float]", key.value).keys())
        for agent in self.model.unsettled():
            assert places[agent.id] == 1 or (places[agent.id] == 0 and self.model.hit(agent)), f"{agent.id} is in {places[agent.id]} places"

    def stray(self, agent_id: str, token: str, type: str, number: int) -> Job:
        """A delivery put into arq's queue by hand."""
        name = f"{TAG}:{agent_id}:{token}"
        body: dict[str, object] = {"t": None, "f": "run_agent", "a": [agent_id, token], "k": {}, "et": 0}
        self.redis.set(f"arq:job:{name}", json.dumps(body), px=30 * 86_400_000)
        self.redis.zadd(f"arq:queue:{TAG}:{type}", {name: number})
        return Job(agent_id, Token(token), type, number, 0)

    def proven_history(self) -> History:
        return check_history(self.history, self.first_limit, self.survivors)


def shaped(answer: object) -> object:
    """An answer in a shape that can be compared: flat records as mappings, sets as sets, cursors of streams left out."""
    items = cast("list[object]", answer) if isinstance(answer, list) else []
    if not items:
        return answer  # pyright: ignore[reportUnknownVariableType]
    if items[0] == "unknown_type":
        known = items[2]
        return [*items[:2], frozenset(known.split(",")) if isinstance(known, str) else frozenset(cast("set[str]", known))]
    if items[0] == "emitted":
        return ["emitted", len(items) - 1]
    if items[0] == "record" and len(items) > 1 and not isinstance(items[1], dict):
        return ["record", as_fields(items[1:])]
    if items[0] == "record":
        return ["record", as_fields([text for pair in cast("dict[str, str]", items[1]).items() for text in pair])]
    return [shaped(item) for item in items]


def as_fields(flat: list[object]) -> str:
    fields = {str(flat[at]): str(flat[at + 1]) for at in range(0, len(flat) - 1, 2)}
    for name in ("watchers", "interrupts"):
        if name in fields:
            fields[name] = ",".join(sorted(fields[name].split(",")))
    return json.dumps(fields, sort_keys=True)


def _value(keys: dict[str, Key], name: str) -> object:
    return keys[name].value if name in keys else "(missing)"
