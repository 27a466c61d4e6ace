"""The scripts' headers are true: their codes are the enum's, every header is whole, and events have the names of the design."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from subagents import scripts
from subagents.models.events import PoolEvent
from subagents.scripts.loader import load, names
from subagents.scripts.replies import Code

FOLDER = Path(scripts.__file__).parent
KINDS = frozenset(re.findall(r"[a-z]+", str(PoolEvent.__doc__).partition("`kind` is one of")[2].partition(".")[0]))
MAY_RUN_OUT_OF_MEMORY = {"spawn", "emit", "save", "steer", "create", "permit_acquire"}
SECTIONS = ("KEYS", "ARGV", "Returns", "Events")
EVERYWHERE = {"no_pool", "foreign_schema"}  # the prelude's, before any script's own


def header_of(name: str) -> dict[str, str]:
    """A script's header: its first sentence under its name, and the text of each section."""
    sections: dict[str, str] = {}
    current = ""
    for line in (FOLDER / f"{name}.lua").read_text().splitlines()[1:]:
        found = re.fullmatch(r"-- (?:(\w+):|(KEYS|ARGV|Returns|Events)\b) *(.*)", line)
        if not line.startswith("--") or line.startswith("-- include:"):
            break
        if found and (found[2] or not sections):
            current = found[1] or found[2]
            sections[current] = found[3]
        else:
            sections[current] += " " + line.removeprefix("--").strip()
    return sections


def codes_of(returns: str) -> set[str]:
    """The codes that a `Returns` section names: the first word in each brace that begins an answer, and those after `code`, `codes`."""
    codes = set(re.findall(r"\{(\w+)[,}]", returns))
    for listed in re.findall(r"codes?:? (?:for each agent: )?([\w |,()':;-]+)", returns):
        codes |= set(re.findall(r"\b[a-z_]+\b", listed))
    return codes & set(Code) | set(re.findall(r"(?:^|\| |of )\{(\w+)", returns))


@pytest.mark.parametrize("name", names())
def test_the_header_is_whole(name: str) -> None:
    header = header_of(name)
    assert header.get(name), f"{name}.lua does not begin with `-- {name}: what it does`"
    for section in SECTIONS:
        assert header.get(section), f"{name}.lua has no {section} line"


@pytest.mark.parametrize("name", names())
def test_scripts_run_also_when_memory_is_full(name: str) -> None:
    first = load(name).source.splitlines()[0]
    wanted = {"#!lua"} if name in MAY_RUN_OUT_OF_MEMORY else {"#!lua flags=allow-oom", "#!lua flags=no-writes"}
    assert first in wanted


@pytest.mark.parametrize("name", names())
def test_every_code_of_a_header_is_in_the_enum(name: str) -> None:
    assert codes_of(header_of(name)["Returns"]) <= set(Code)


def test_every_code_of_the_enum_is_in_a_header() -> None:
    named = EVERYWHERE.union(*(codes_of(header_of(name)["Returns"]) for name in names()))
    assert set(Code) == named


@pytest.mark.parametrize("file", sorted(FOLDER.rglob("*.lua")), ids=lambda file: file.stem)
def test_events_have_the_names_of_the_design(file: Path) -> None:
    code = re.sub(r"--[^\n]*", "", file.read_text())
    for argument in re.findall(r"\bevent\(([^,]+),", code):
        kinds = re.findall(r"'(\w+)'", argument)
        assert set(kinds) <= KINDS, f"{file.name}: event({argument})"
