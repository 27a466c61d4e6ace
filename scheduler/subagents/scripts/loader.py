"""Reads the scripts and puts their shared pieces in: a line `-- include: name` stands for the text of `include/name.lua`."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

_INCLUDE = re.compile(r"^-- include: (\w+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """One script, ready to send: its whole source, and the digest by which the server knows it."""

    name: str
    source: str
    sha: str


@cache
def load(name: str) -> Script:
    """The script of that name, with its includes."""
    source = _expand(_read(f"{name}.lua"))
    return Script(name, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


@cache
def names() -> tuple[str, ...]:
    """The names of all scripts."""
    folder = files(__name__.rpartition(".")[0])
    return tuple(sorted(entry.name.removesuffix(".lua") for entry in folder.iterdir() if entry.name.endswith(".lua")))


def _expand(text: str) -> str:
    return _INCLUDE.sub(lambda found: _expand(_read(f"include/{found[1]}.lua")), text)


def _read(path: str) -> str:
    return files(__name__.rpartition(".")[0]).joinpath(path).read_text(encoding="utf-8")
