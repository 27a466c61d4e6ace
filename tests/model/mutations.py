"""Ways to break a Lua script, found mechanically in its text: each guard negated, each step dropped, each comparison shifted."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import sha1
from pathlib import Path

GUARD = re.compile(r"\b(if|elseif|while)\b(?P<condition>.+?)\b(then|do)\b", re.DOTALL)
STATEMENT = re.compile(r"(?:^|\bthen|\belse|\bdo|;)[ \t]*(?P<call>(?P<name>[a-z_]+)\()", re.MULTILINE)
WRITE_INSIDE = re.compile(r"(?<=[\s(,{=])(?P<call>call\('(?:INCR|HINCRBY|SREM|ZREM|ZPOPMIN|XADD|SET|DEL)')")
COMPARISON = re.compile(r"(?<=\s)(<=|>=|==|~=|<|>)(?=\s)")
EXCLUSIVE = re.compile(r"'\('(?= ?\.\.)")
SHIFTED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "~=", "~=": "=="}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One broken script: which file, where, and its whole text."""

    path: str
    line: int
    kind: str
    before: str
    after: str
    text: str
    copy: int = 1  # which of several equal lines of that file

    @property
    def id(self) -> str:
        """Stays the same while the line's own text does: survivors are listed by it."""
        digest = sha1(f"{self.kind}|{self.before}|{self.after}".encode(), usedforsecurity=False).hexdigest()[:6]
        return f"{self.path}:{digest}" + (f"#{self.copy}" if self.copy > 1 else "")

    def __str__(self) -> str:
        return f"{self.id}  line {self.line}: {self.kind}: {self.before}  ->  {self.after}"


def mutants_of(folder: Path) -> list[Mutant]:
    """Every mutant of every script in a folder."""
    found: list[Mutant] = []
    for file in sorted(folder.rglob("*.lua")):
        path = file.relative_to(folder).as_posix().removesuffix(".lua")
        copies: Counter[str] = Counter()
        for mutant in _mutants(path, file.read_text()):
            copies[mutant.id] += 1
            found.append(replace(mutant, copy=copies[mutant.id]))
    return found


def _mutants(path: str, text: str) -> Iterator[Mutant]:
    masked = _masked(text)

    def mutant(start: int, end: int, kind: str, replacement: str) -> Mutant:
        line_start, line_end = text.rfind("\n", 0, start) + 1, text.find("\n", end)
        before = text[line_start:line_end]
        after = text[line_start:start] + replacement + text[end:line_end]
        number = text.count("\n", 0, start) + 1
        return Mutant(path, number, kind, _squeezed(before), _squeezed(after), text[:start] + replacement + text[end:])

    for guard in GUARD.finditer(masked):
        start, end = guard.span("condition")
        yield mutant(start, end, "negated", f" not ({text[start:end].strip()}) ")
    for statement in STATEMENT.finditer(masked):
        start = statement.start("call")
        end = _closing(masked, statement.end("call"))
        if statement["name"] not in ("if", "elseif", "while", "for", "return", "function"):
            yield mutant(start, end, "dropped", "do end")
    for write in WRITE_INSIDE.finditer(text):
        start = write.start("call")
        end = _closing(masked, start + len("call("))
        if masked[start] == text[start] and not _is_statement(masked, start):
            yield mutant(start, end, "dropped", "{}" if "ZPOPMIN" in write["call"] else "0")
    for comparison in COMPARISON.finditer(masked):
        yield mutant(*comparison.span(), "shifted", SHIFTED[comparison[0]])
    for exclusive in EXCLUSIVE.finditer(text):
        yield mutant(*exclusive.span(), "shifted", "''")


def _masked(text: str) -> str:
    """The text with comments and the insides of strings blanked out, of the same length."""

    def blank(found: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", found[0]) if found[0].startswith(("--", "#!")) else f"'{'_' * (len(found[0]) - 2)}'"

    return re.sub(r"--[^\n]*|^#![^\n]*|'[^'\n]*'", blank, text)


def _closing(masked: str, after_opening: int) -> int:
    depth, at = 1, after_opening
    while depth:
        depth += {"(": 1, ")": -1}.get(masked[at], 0)
        at += 1
    return at


def _is_statement(masked: str, start: int) -> bool:
    return any(found.start("call") == start for found in STATEMENT.finditer(masked))


def _squeezed(text: str) -> str:
    return " ".join(text.split())
