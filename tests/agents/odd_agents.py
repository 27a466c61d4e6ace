"""Agents that end in odd ways, and those of `probe_agents` beside them."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

from agents.probe_agents import probed
from subagents_worker import AgentContext, agent


class Unspeakable(Exception):
    """Cannot even say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


class HoldsSocket(Exception):
    """Holds what no serialiser takes."""

    def __init__(self, held: socket.socket) -> None:
        super().__init__("it holds a socket")
        self.held = held


class NotEvenAnException(BaseException):
    """Passes by `except Exception`."""


def _broken() -> Iterator[int]:
    yield 1
    raise ZeroDivisionError("in the middle")


class Sneaky:
    """Looks harmless until it is asked."""

    def __getattr__(self, name: str) -> Any:
        raise LookupError(name)


def _circle() -> list[Any]:
    circle: list[Any] = []
    circle.append(circle)
    return circle


def _deep() -> list[Any]:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    return deep


RESULTS: dict[str, Callable[[], Any]] = {
    "generator": lambda: (number for number in range(3)),
    "broken generator": _broken,
    "lambda": lambda: lambda: None,
    "object": object,
    "sneaky": Sneaky,
    "socket": lambda: HoldsSocket,
    "circle": _circle,
    "deep": _deep,
    "surrogate": lambda: "\ud800",
    "surrogate key": lambda: {"\ud800": 1},
    "bytes": lambda: b"\xff\xfe",
}


@agent("give")
async def give(ctx: AgentContext, what: str) -> Any:
    async with probed(ctx):
        return RESULTS[what]()


@agent("throw")
async def throw(ctx: AgentContext, what: str) -> None:
    async with probed(ctx):
        match what:
            case "socket":
                with socket.socket() as held:
                    raise HoldsSocket(held)
            case "unspeakable":
                raise Unspeakable
            case "surrogate":
                raise RuntimeError("a file called \udcff")
            case "base":
                raise NotEvenAnException("out of the way")
            case "group":
                raise ExceptionGroup("several", [ValueError("one"), TypeError("two")])
            case "long":
                raise RuntimeError("x" * 5_000_000)
            case "generator exit":
                raise GeneratorExit
            case _:
                raise AssertionError(what)


@agent("chatter")
async def chatter(ctx: AgentContext, seconds: float, every: float = 0.05) -> float:
    """Gives a sign of life again and again."""
    async with probed(ctx):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            await ctx.emit("progress", left=until - time.monotonic())
            await asyncio.sleep(every)
        return seconds


@agent("block")
async def block(ctx: AgentContext, seconds: float) -> float:
    """Blocks the whole event loop."""
    async with probed(ctx):
        time.sleep(seconds)  # noqa: ASYNC251 that is what it is for
        return seconds


@agent("typed")
async def typed(ctx: AgentContext, value: Any) -> int:
    """Promises a number."""
    async with probed(ctx):
        number: int = value
        return number
