"""All commands, put together."""

from __future__ import annotations

from typing import Annotated

import typer

from subagents.cli import control, demo, looking, serving, spawning

application = typer.Typer(
    name="subagents",
    help="Run many agents on many machines over Redis, in order, under a hard limit, and stop them all with one call.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: rich's would take longer to import than everything else
    context_settings={"help_option_names": ["-h", "--help"]},
)

for name, function in (
    ("demo", demo.demo),
    ("up", serving.up),
    ("scheduler", serving.scheduler),
    ("worker", serving.worker),
    ("spawn", spawning.spawn),
    ("ps", looking.ps),
    ("show", looking.show_agent),
    ("wait", spawning.wait),
    ("tail", spawning.tail),
    ("abort", control.abort),
    ("interrupt", control.interrupt),
    ("halt", control.halt),
    ("unhalt", control.unhalt),
    ("pause", control.pause),
    ("unpause", control.unpause),
):
    application.command(name)(function)
# `limit -1` is a limit that is refused, not an option that is unknown.
application.command("limit", context_settings={"ignore_unknown_options": True})(control.limit)


def _print_version(wanted: bool) -> None:
    if wanted:
        from subagents import __version__

        print(f"subagents {__version__}")
        raise typer.Exit


@application.callback()
def _every_command(
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")] = False,
) -> None:
    del version
