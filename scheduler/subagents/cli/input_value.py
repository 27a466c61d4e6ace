"""An agent's input as a command takes it: JSON on the command line, in a file, or on stdin."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from subagents.errors import InvalidArgument, InvalidInput

SHAPE = """expected JSON such as '{"topic": "permits"}', @FILE, or - for stdin"""


def read_input(given: str | None) -> Any:
    """The value of `JSON`, `@FILE` or `-`; None if nothing was given."""
    if given is None:
        return None
    where, text = _text(given)
    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError as unreadable:
        raise InvalidInput(f"{where} is no JSON: {unreadable}; {SHAPE}") from None


def _text(given: str) -> tuple[str, str | bytes]:
    if given == "-":
        return "what stdin holds", sys.stdin.buffer.read()
    if not given.startswith("@"):
        return f"the input {_clipped(given)!r}", given
    path = Path(given[1:])
    try:
        return f"what {path} holds", path.read_bytes()
    except OSError as error:
        raise InvalidArgument(f"the input file {str(path)!r} cannot be read: {error.strerror}; {SHAPE}") from None


def _clipped(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:59]}…"
