"""Breaks the scripts, one way at a time, and sees whether the state machines notice.

    python tests/model/mutants.py --all                     every mutant; exit 1 if one survives without a listed reason
    python tests/model/mutants.py --sample 25 --seed 7      a seeded sample of them
    python tests/model/mutants.py --only include/losing     those of one file
    python tests/model/mutants.py --list                    what would be tried

A mutant that is equivalent, or that changes only speed, stands in `survivors.toml` with the reason.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha1
from pathlib import Path

from hypothesis import Phase, Verbosity, settings
from hypothesis.stateful import RuleBasedStateMachine
from mutations import Mutant, mutants_of
from permit_machine import PermitBench, PermitMachine
from pool_bench import SLOW_IS_FINE, Bench, private_gateway, run_machine
from pool_machine import PoolMachine
from redis.exceptions import RedisError

from subagents import scripts
from subagents.scripts import loader
from subagents.scripts.gateway import ThreadGateway

FOLDER = Path(scripts.__file__).parent
SURVIVORS = Path(__file__).with_name("survivors.toml")
OF_BOTH = ("include/admission", "include/lanes", "include/clock", "include/prelude", "create")
INCLUDE = re.compile(r"^-- include: (\w+)$", re.MULTILINE)
EXAMPLES, SECONDS, CALL_SECONDS = 100, 60.0, 5.0
MANY = 8
CORE = frozenset(
    {
        *(
            "more_work",
            "claim_some",
            "hold_and_release",
            "interrupt_only",
            "silent_worker",
            "family",
            "read_records",
            "damage",
            "clock_step",
        ),
        *("leave_pool", "join_pool", "lost_delivery", "permits_come_free", "change_limit", "watch_and_wait"),
    }
)


INTACT = Mutant("intact", 0, "intact", "", "", "")


class TimeIsUp(Exception):
    """The mutant has lived long enough to count as a survivor."""


@dataclass
class Deadline:
    """How long a mutant may live. Hypothesis may wrap what ends an example in errors of its own, so the end is noted here too."""

    mutant: Mutant
    at: float
    passed: bool = False

    def check(self) -> None:
        if time.monotonic() > self.at:
            self.passed = True
            raise TimeIsUp


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one mutant."""

    mutant: Mutant
    killed: bool
    seconds: float
    how: str


def listed_survivors() -> dict[str, str]:
    """Mutants that may live, each with its reason."""
    if not SURVIVORS.exists():
        return {}
    return {entry["id"]: entry["reason"] for entry in tomllib.loads(SURVIVORS.read_text())["survivor"]}


@contextmanager
def installed(mutant: Mutant, texts: Mapping[str, str]) -> Generator[None]:
    """The gateway loads the broken text instead of the file's own; of the others, those that were there at the start."""

    def text_of(path: str) -> str:
        text = mutant.text if path == mutant.path else texts[path]
        return INCLUDE.sub(lambda found: text_of(f"include/{found[1]}"), text)

    def load(name: str) -> loader.Script:
        if name not in made:
            source = text_of(name)
            made[name] = loader.Script(name, source, sha1(source.encode(), usedforsecurity=False).hexdigest())
        return made[name]

    made: dict[str, loader.Script] = {}
    intact, loader.load = loader.load, load  # type: ignore[assignment]
    try:
        yield
    finally:
        loader.load = intact


class Judge:
    """Runs mutants against the state machines, on a server that is replaced when a mutant hangs it."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self.seconds = seconds
        self.texts = {f.relative_to(FOLDER).as_posix().removesuffix(".lua"): f.read_text() for f in FOLDER.rglob("*.lua")}
        self._reached: dict[str, Counter[str]] = {}
        self._server = private_gateway(socket_timeout=CALL_SECONDS)
        self._gateway: ThreadGateway = self._server.__enter__()

    def close(self) -> None:
        self._server.__exit__(None, None, None)

    def _replace_server(self) -> None:
        self.close()
        self._server = private_gateway(socket_timeout=CALL_SECONDS)
        self._gateway = self._server.__enter__()

    def judge(self, mutant: Mutant) -> Verdict:
        """Run the machines that its file concerns until one notices, or the time is up."""
        started = time.monotonic()
        machines: list[Callable[[Deadline], None]] = []
        if not mutant.path.startswith(("permit", "include/permit")):
            machines.append(self._run_pool)
        if mutant.path.startswith(("permit", "include/permit")) or mutant.path in (*OF_BOTH, INTACT.path):
            machines.append(self._run_permits)
        how = "survived"
        with installed(mutant, self.texts):
            for run in machines:
                deadline = Deadline(mutant, time.monotonic() + (self.seconds if mutant is not INTACT else 10 * self.seconds))
                try:
                    run(deadline)
                except (Exception, BaseExceptionGroup) as noticed:
                    if not deadline.passed:
                        how = type(noticed).__name__
                        break
        try:
            self._gateway.redis.ping()
        except RedisError:
            self._replace_server()
        return Verdict(mutant, how != "survived", time.monotonic() - started, how)

    def _focus(self, mutant: Mutant) -> frozenset[str] | None:
        """The rules that reach the mutant's script, as the intact scripts have shown, and the core; None for what every script uses."""
        users = {name for name in self.texts if "/" not in name and mutant.path in self._parts(name)}
        if not self._reached or len(users) > MANY:
            return None
        counts = sum((self._reached.get(name, Counter()) for name in users), Counter[str]())
        return frozenset(name for name in counts) | CORE

    def _parts(self, name: str) -> set[str]:
        included = {f"include/{part}" for part in INCLUDE.findall(self.texts[name])}
        return {name}.union(*(self._parts(part) for part in included))

    def _run_pool(self, deadline: Deadline) -> None:
        bench, focus = Bench(self._gateway), self._focus(deadline.mutant)
        try:
            _run(lambda: Impatient(bench, deadline, focus))
            if deadline.mutant is INTACT:
                self._reached = bench.reached
        finally:
            bench.close()

    def _run_permits(self, deadline: Deadline) -> None:
        bench = PermitBench(self._gateway)
        try:
            _run(lambda: ImpatientPermits(bench, deadline), 4 * EXAMPLES)
        finally:
            bench.close()


class Impatient(PoolMachine):
    """Ends when the time is up."""

    def __init__(self, bench: Bench, deadline: Deadline, focus: frozenset[str] | None) -> None:
        super().__init__(bench)
        self._deadline, self.focus = deadline, focus

    def check_invariants(self, *args: object, **kwargs: object) -> None:
        self._deadline.check()


class ImpatientPermits(PermitMachine):
    """Ends when the time is up."""

    def __init__(self, bench: PermitBench, deadline: Deadline) -> None:
        super().__init__(bench)
        self._deadline = deadline

    def check_invariants(self, *args: object, **kwargs: object) -> None:
        self._deadline.check()


def _run(machine: Callable[[], RuleBasedStateMachine], examples: int = EXAMPLES) -> None:
    run_machine(
        machine,
        settings(
            max_examples=examples,
            stateful_step_count=30,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            report_multiple_bugs=False,
            verbosity=Verbosity.quiet,
            suppress_health_check=SLOW_IS_FINE,
        ),
    )


def judge_all(mutants: Sequence[Mutant], seconds: float, say: Callable[[str], None]) -> list[Verdict]:
    """Judge each in turn; says a line for each as it goes."""
    judge, verdicts = Judge(seconds), list[Verdict]()
    try:
        intact = judge.judge(INTACT)
        if intact.killed:
            raise SystemExit(f"the intact scripts fail ({intact.how}): run the state machine first")
        for number, mutant in enumerate(mutants, 1):
            verdict = judge.judge(mutant)
            verdicts.append(verdict)
            word = "killed" if verdict.killed else "LIVES"
            say(f"{number}/{len(mutants)} {word:6} {verdict.seconds:5.1f}s {verdict.how:18} {mutant}")
    finally:
        judge.close()
    return verdicts


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(description="Breaks the scripts and sees whether the state machines notice.")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--all", action="store_true")
    which.add_argument("--sample", type=int, metavar="N")
    which.add_argument("--only", metavar="FILE_OR_ID", nargs="+")
    which.add_argument("--list", action="store_true")
    which.add_argument("--listed", action="store_true", help="only the listed survivors")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long each may live")
    parser.add_argument("--part", default="1/1", metavar="K/N", help="the K-th of N equal parts, to run several at once")
    chosen = parser.parse_args(arguments)

    every, reasons = mutants_of(FOLDER), listed_survivors()
    mutants = every
    if chosen.sample:
        mutants = random.Random(chosen.seed).sample(every, min(chosen.sample, len(every)))
    elif chosen.only:
        mutants = [m for m in every if m.path in chosen.only or m.id in chosen.only]
    elif chosen.listed:
        mutants = [m for m in every if m.id in reasons]
    part, parts = (int(text) for text in chosen.part.split("/"))
    mutants = mutants[part - 1 :: parts]
    if chosen.list:
        print("\n".join(map(str, mutants)))
        return 0

    verdicts = judge_all(mutants, chosen.seconds, lambda line: print(line, flush=True))
    alive = [v.mutant for v in verdicts if not v.killed]
    unexplained = [m for m in alive if m.id not in reasons]
    needless = [v.mutant for v in verdicts if v.killed and v.mutant.id in reasons]
    print(f"\n{len(verdicts)} mutants, {len(verdicts) - len(alive)} killed, {len(alive)} alive, {len(unexplained)} without a reason")
    for mutant in unexplained:
        print(f"  no reason: {mutant}")
    for mutant in needless:
        print(f"  listed, but killed: {mutant}")
    gone = sorted(set(reasons) - {m.id for m in every})
    for survivor in gone:
        print(f"  listed, but there is no such mutant: {survivor}")
    return 1 if unexplained or gone else 0


if __name__ == "__main__":
    sys.exit(main())
