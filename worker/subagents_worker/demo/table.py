"""A summary of measured files as plain text, at most 80 columns wide."""

import os
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Final

from subagents_worker.demo.measure import GRADES, Lines, grade
from subagents_worker.demo.summary import Summary

WIDTH: Final = 80
_BAR: Final = 30
_PROBLEMS_SHOWN: Final = 10

_Row = tuple[str, ...]


def render(summary: Summary) -> str:
    """Draw the whole summary; ends without a line break."""
    sections = (
        _head(summary),
        _lines(summary.lines),
        _grades(summary),
        _most_complex(summary),
        _longest_functions(summary),
        _longest_files(summary),
        _problems(summary),
    )
    return "\n\n".join("\n".join(rows) for section in sections if (rows := list(section)))


def _head(summary: Summary) -> Iterator[str]:
    yield _clip(_plain(summary.root), WIDTH, keep_end=True) or "Measured"
    yield "═" * WIDTH
    counts = (
        _count(summary.files, "file", "files"),
        _count(summary.lines.total, "line", "lines"),
        _count(summary.functions, "function", "functions"),
        _count(summary.classes, "class", "classes"),
        _count(summary.imports, "import", "imports"),
    )
    yield _clip(" · ".join(counts), WIDTH)
    yield f"on average {summary.mean_file_lines:,.0f} lines a file, {summary.mean_function_lines:,.1f} a function"
    if summary.deepest:
        depth = _count(summary.deepest.depth, "block", "blocks")
        place = f"{_short(summary.deepest.path, summary.root)}:{summary.deepest.line}"
        yield _clip(f"deepest nesting {depth}, in {_plain(summary.deepest.inside)}, {place}", WIDTH)


def _lines(lines: Lines) -> Iterator[str]:
    yield from _title("Lines")
    for name, count in (("code", lines.code), ("comment", lines.comment), ("blank", lines.blank)):
        yield _share(name, count, lines.total)


def _grades(summary: Summary) -> Iterator[str]:
    if not summary.functions:
        return
    yield from _title("Functions by complexity", f"mean {summary.mean_complexity:,.1f}")
    lowest = 1
    for letter, highest in GRADES:
        yield _share(f"{letter}  {lowest}-{highest}", summary.grades.get(letter, 0), summary.functions)
        lowest = highest + 1
    yield _share(f"F  {lowest}+", summary.grades.get("F", 0), summary.functions)


def _most_complex(summary: Summary) -> Iterator[str]:
    rows = [
        (grade(function.complexity), f"{function.complexity:,}", f"{function.lines:,}", _plain(function.name), place)
        for function in summary.most_complex
        for place in (f"{_short(function.path, summary.root)}:{function.line}",)
    ]
    yield from _ranking("The most complex functions", ("", "complexity", "lines", "function", "where"), rows)


def _longest_functions(summary: Summary) -> Iterator[str]:
    rows = [
        (f"{function.lines:,}", f"{function.complexity:,}", _plain(function.name), place)
        for function in summary.longest_functions
        for place in (f"{_short(function.path, summary.root)}:{function.line}",)
    ]
    yield from _ranking("The longest functions", ("lines", "complexity", "function", "where"), rows)


def _longest_files(summary: Summary) -> Iterator[str]:
    rows = [
        (f"{file.lines:,}", f"{file.functions:,}", f"{file.classes:,}", f"{file.complexity:,}", name)
        for file in summary.longest_files
        for name in (_short(file.path, summary.root),)
    ]
    yield from _ranking("The longest files", ("lines", "functions", "classes", "worst", "file"), rows)


def _problems(summary: Summary) -> Iterator[str]:
    if not summary.unmeasured:
        return
    yield from _title("Not measured", _count(summary.unmeasured, "file", "files"))
    for item in summary.problems[:_PROBLEMS_SHOWN]:
        yield _clip(f"{_short(item.path, summary.root)}: {_plain(item.problem)}", WIDTH)
    if summary.unmeasured > _PROBLEMS_SHOWN:
        yield f"and {summary.unmeasured - _PROBLEMS_SHOWN:,} more"


def _title(title: str, note: str = "") -> Iterator[str]:
    yield f"{title}{note:>{WIDTH - len(title)}}".rstrip()
    yield "─" * WIDTH


def _share(name: str, count: int, total: int) -> str:
    share = count / total if total else 0.0
    return f"{name:<10}{count:>12,}{share:>8.1%}  {_bar(share)}".rstrip()


def _bar(share: float) -> str:
    eighths = round(share * _BAR * 8)
    if share and not eighths:
        eighths = 1  # few is not none
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def _ranking(title: str, heads: _Row, rows: Sequence[_Row]) -> Iterator[str]:
    """Draw a table of numbers on the right and words on the left; the last two columns share what room is left."""
    if not rows:
        return
    yield from _title(title)
    words = len(heads) - heads.index("function") if "function" in heads else 1
    numbers = len(heads) - words
    widths = [max(_columns(cell) for cell in column) for column in zip(heads, *rows, strict=True)]
    room = WIDTH - sum(widths[:numbers]) - 2 * (len(heads) - 1)
    last = min(widths[-1], room if words == 1 else max(room // 2, room - widths[-2]))
    widths[numbers:] = [last] if words == 1 else [min(widths[-2], room - last), last]
    for row in (heads, *rows):
        cells = [_pad(cell, width, right=at < numbers) for at, (cell, width) in enumerate(zip(row, widths, strict=True))]
        yield "  ".join(cells).rstrip()


def _pad(cell: str, width: int, *, right: bool) -> str:
    cell = _clip(cell, width, keep_end=True)
    space = " " * (width - _columns(cell))
    return space + cell if right else cell + space


def _clip(text: str, width: int, *, keep_end: bool = False) -> str:
    """Cut a text that is too wide; of a path or a qualified name the end says most."""
    if _columns(text) <= width:
        return text
    text = text[-4 * width :] if keep_end else text[: 4 * width]  # a name may be as long as its file
    while _columns(text) > width - 1:
        text = text[1:] if keep_end else text[:-1]
    return f"…{text}" if keep_end else f"{text}…"


def _columns(text: str) -> int:
    """Count terminal columns: East Asian letters take two, combining marks none."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return len(text) + wide - sum(bool(unicodedata.combining(letter)) for letter in text)


def _short(path: str, root: str) -> str:
    return _plain(path.removeprefix(os.path.join(root, "")))


def _plain(text: str) -> str:
    """Keep what a file's name holds from steering the terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _count(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"
