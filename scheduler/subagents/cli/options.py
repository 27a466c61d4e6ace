"""The options that every command has, and how a command is run."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any

import typer

from subagents import settings
from subagents.cli.errors import ExitCode

Answer = int | None
RedisUrl = Annotated[
    str | None,
    typer.Option("--redis", metavar="URL", envvar=settings.REDIS_URL_VARIABLE, help="The Redis server: redis://, rediss:// or unix://."),
]
PoolName = Annotated[str, typer.Option("--pool", metavar="NAME", envvar=settings.POOL_VARIABLE, help="The pool on that server.")]
AsJson = Annotated[bool, typer.Option("--json", help="Answer in JSON; errors too, on stderr.")]


@dataclass(frozen=True, slots=True)
class Target:
    """Which pool a command is about, and in which form it answers."""

    url: str | None
    pool: str
    json: bool


def command(function: Callable[..., Answer | Awaitable[Answer]]) -> Callable[..., int]:
    """A command with `--redis`, `--pool` and `--json`: its first parameter is the `Target` they make. A coroutine gets an event loop.

    It returns the exit code; None is 0.
    """
    signature = inspect.signature(function, eval_str=True)
    _, *own = signature.parameters.values()
    given = {parameter.name for parameter in own}
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, default, annotation in (("redis", None, RedisUrl), ("pool", "default", PoolName), ("json", False, AsJson))
        if name not in given
    ]

    @wraps(function)
    def run(**arguments: Any) -> int:
        kept = {name: value for name, value in arguments.items() if name in given}
        target = Target(arguments["redis"], arguments["pool"], arguments["json"])
        try:
            answer = function(target, **kept)
            return (asyncio.run(_until_ctrl_c(answer)) if inspect.isawaitable(answer) else answer) or 0
        except BrokenPipeError:  # whoever read the answers has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0

    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own] + shared
    run.__signature__ = signature.replace(parameters=parameters, return_annotation=int)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters} | {"return": int}
    return run


async def _until_ctrl_c(answer: Awaitable[Answer]) -> Answer:
    """Await a command; Ctrl-C cancels it, a second one ends the process.

    asyncio's own handler will not do: it may cancel in the middle of a step, and if the next thing that is awaited is a write by
    redis-py, which is done at once, `wait_for` swallows the cancellation (bpo-37658, seen). This one acts between steps.
    """
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    pressed = False

    def press() -> None:
        nonlocal pressed
        if pressed or task is None:
            raise KeyboardInterrupt
        pressed = True
        task.cancel()

    loop.add_signal_handler(signal.SIGINT, press)
    try:
        return await answer
    except asyncio.CancelledError:
        if not pressed:
            raise
        return ExitCode.INTERRUPTED
    finally:
        loop.remove_signal_handler(signal.SIGINT)
