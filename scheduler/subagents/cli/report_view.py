"""The account of an interrupt as people see it, and the exit code that it comes to."""

from __future__ import annotations

from collections import defaultdict

from rich.table import Table
from rich.text import Text

from subagents.cli.errors import ExitCode, plain
from subagents.cli.output import duration, show, show_json
from subagents.models import InterruptedAgent, InterruptOutcome, InterruptReport

NAMED = 20
"""Up to so many agents are named each; more are counted per worker."""

STYLES = {
    InterruptOutcome.STOPPED: "green",
    InterruptOutcome.STOPPING: "yellow",
    InterruptOutcome.NOT_RESPONDING: "red",
    InterruptOutcome.UNREACHABLE: "red",
}


def show_report(report: InterruptReport, *, as_json: bool) -> ExitCode:
    """Print the account; done if everyone is out, timed out otherwise."""
    if as_json:
        show_json(report)
    else:
        show(_headline(report))
        if report.agents:
            show(_each_agent(report) if len(report.agents) <= NAMED else _each_worker(report))
    return ExitCode.DONE if report.complete else ExitCode.TIMED_OUT


def _headline(report: InterruptReport) -> Text:
    whom = "everyone" if report.scope == "*" else f"scope {plain(report.scope)}"
    done = ("complete", "bold green") if report.complete else ("not complete", "bold red")
    text = Text.assemble(f"Interrupt of {whom}: ", done, f" after {duration(report.elapsed_ms / 1000)}, ")
    text.append(f"{report.queued_stopped:,} queued stopped, {len(report.agents):,} running")
    if report.agents:
        text.append(" (" + ", ".join(f"{count:,} {_words(outcome)}" for outcome, count in sorted(report.outcomes().items())) + ")")
    return text.append(f"  [{report.interrupt_id}]", "dim")


def _each_agent(report: InterruptReport) -> Table:
    table = _table("AGENT", "OUTCOME", "WORKER")
    for agent in sorted(report.agents, key=lambda agent: (list(STYLES).index(agent.outcome), agent.elapsed_ms)):
        table.add_row(agent.id, Text(_fate(agent), STYLES[agent.outcome]), Text(plain(agent.worker or "")))
    return table


def _each_worker(report: InterruptReport) -> Table:
    outcomes = sorted(report.outcomes(), key=list(STYLES).index)
    table = _table("WORKER", *(_words(outcome).upper() for outcome in outcomes), "SLOWEST")
    workers: defaultdict[str, list[InterruptedAgent]] = defaultdict(list)
    for agent in report.agents:
        workers[agent.worker or "(none)"].append(agent)
    for worker, agents in sorted(workers.items()):
        counts = (sum(agent.outcome is outcome for agent in agents) for outcome in outcomes)
        slowest = max(agent.elapsed_ms for agent in agents)
        table.add_row(Text(plain(worker)), *(f"{count:,}" for count in counts), duration(slowest / 1000))
    return table


def _table(*heads: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for head in heads:
        table.add_column(head, no_wrap=True, overflow="ellipsis")
    return table


def _fate(agent: InterruptedAgent) -> str:
    took = duration(agent.elapsed_ms / 1000)
    if agent.outcome is InterruptOutcome.STOPPED:
        return f"stopped in {took}"
    if agent.lease_void_ms is not None:
        return f"worker unreachable, lease void in {duration(agent.lease_void_ms / 1000)}"
    return f"{_words(agent.outcome)} for {took}"


def _words(outcome: InterruptOutcome) -> str:
    return outcome.value.replace("_", " ")
