"""What the demo's agents do: measure Python source files for real, and add the measures up.

How things are counted
    **Complexity** is McCabe's: a function starts at 1; each `if`, `elif`, `for`, `async for`, `while`, `except`,
    ternary, `case`, and each `for` and `if` of a comprehension adds 1; so does each operand of `and`/`or` beyond the
    first. `else`, `with`, `try`, `finally` and `assert` add nothing. A nested function counts for itself only; its
    decorators and defaults, and every lambda, count for the function around it. Code outside functions counts nowhere.
    **Nesting** is the number of blocks (`if`, `for`, `while`, `with`, `try`, `match`) that stand inside one another.
    An `elif` is as deep as its `if`; a function starts again at 0, a class does not.
    **Lines**: a comment line holds nothing but a comment; a blank line inside a string is code, and so is a docstring.
    **Imports** are import statements, wherever they stand. A function's lines run from its `def` to its end.

A file that cannot be measured is a result too: its `problem` says why, and its lines are counted by their looks.
"""

import ast
import io
import os
import stat
import sysconfig
import threading
import tokenize
import warnings
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict

KEPT: Final = 10
"""How many functions and files a ranking holds."""
LARGEST_SOURCE: Final = 2_000_000
"""Bytes. A larger file is data in Python's clothes, slow to parse and some hundred times its size as a syntax tree."""

LONGEST_NAME: Final = 200
"""Letters. Of a longer qualified name the end is kept: a result stays small whatever it was made from."""

_NEVER_SOURCE: Final = frozenset({"site-packages", "dist-packages", "__pycache__"})
_NOT_LIBRARY: Final = frozenset({"test", "tests", "idlelib", "lib2to3"})

Grade = Literal["A", "B", "C", "D", "E", "F"]
GRADES: Final[tuple[tuple[Grade, int], ...]] = (("A", 5), ("B", 10), ("C", 20), ("D", 30), ("E", 40))
"""The highest complexity of each grade; whatever is above is an F."""


class Frozen(BaseModel):
    """A result: fixed once made, and nothing but its fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Lines(Frozen):
    """Lines by kind; `code + comment + blank == total`."""

    total: int = 0
    code: int = 0
    comment: int = 0
    blank: int = 0


class FunctionMeasures(Frozen):
    """One function or method; `name` is qualified, as in `Class.method` or `outer.inner`."""

    name: str
    line: int
    lines: int
    complexity: int
    nesting: int


class Nesting(Frozen):
    """The innermost of the blocks that stand deepest; `inside` is a function's name, or `<module>`."""

    depth: int
    line: int
    inside: str


class FileMeasures(Frozen):
    """One file. `notable` holds its most complex and its longest functions, so that a summary over files is exact."""

    path: str
    lines: Lines
    functions: int = 0
    classes: int = 0
    imports: int = 0
    function_lines: int = 0
    complexity: int = 0
    mean_function_lines: float = 0.0
    mean_complexity: float = 0.0
    longest: FunctionMeasures | None = None
    most_complex: FunctionMeasures | None = None
    deepest: Nesting | None = None
    grades: dict[Grade, int] = {}
    notable: tuple[FunctionMeasures, ...] = ()
    problem: str | None = None


def grade(complexity: int) -> Grade:
    """Say in one letter how hard a function is to follow: A up to 5, B to 10, C to 20, D to 30, E to 40, else F."""
    for letter, highest in GRADES:
        if complexity <= highest:
            return letter
    return "F"


# ── Finding the files


def default_directory() -> Path:
    """The source of this Python's standard library."""
    return Path(sysconfig.get_path("stdlib"))


def find_sources(directory: Path, limit: int | None = None) -> list[Path]:
    """List the Python files below `directory`, sorted by path; with `limit` the first so many.

    Skipped: hidden folders and files, `site-packages`, `__pycache__`, linked folders, folders that may not be read.
    In the standard library also its tests, IDLE and lib2to3, which leaves a few hundred files.

    Raises:
        OSError: `directory` is missing, is not a folder, or may not be read.
        ValueError: `limit` is negative.
    """
    is_library = directory.resolve() == default_directory().resolve()
    return list(islice(_walk_folder(directory, _NEVER_SOURCE | _NOT_LIBRARY if is_library else _NEVER_SOURCE), limit))


def _walk_folder(directory: Path, skipped: frozenset[str]) -> Iterator[Path]:
    stack = _entries(directory)
    while stack:
        entry = stack.pop()
        if entry.name.startswith("."):
            continue
        try:
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in skipped:
                    stack.extend(_entries(entry.path))
            elif entry.name.endswith(".py") and entry.is_file():
                yield Path(entry.path)
        except OSError:  # not ours to read, or gone meanwhile
            continue


def _entries(directory: str | Path) -> list[os.DirEntry[str]]:
    with os.scandir(directory) as entries:
        return sorted(entries, key=lambda entry: entry.name, reverse=True)


# ── Measuring one file


def measure_file(path: Path) -> FileMeasures:
    """Measure one Python file; a file that is broken, huge or unreadable comes back with a `problem`.

    Raises:
        FileNotFoundError, NotADirectoryError: there is no such file.
    """
    name = _printable(os.fspath(path))
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            return FileMeasures(path=name, lines=Lines(), problem="not a regular file")
        if status.st_size > LARGEST_SOURCE:
            return FileMeasures(path=name, lines=Lines(), problem=f"larger than {LARGEST_SOURCE:,} bytes")
        source = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        return FileMeasures(path=name, lines=Lines(), problem=f"not readable: {error.strerror}")
    return measure_source(name, source)


def measure_source(name: str, source: bytes) -> FileMeasures:
    """Measure Python source as it stands in a file named `name`; never raises."""
    try:
        with _quiet():
            text = _decode(source)
            tree = ast.parse(text)
    except SyntaxError as error:
        where = f" at line {error.lineno}" if error.lineno else ""
        problem = f"syntax error{where}: {error.msg}"
    except (RecursionError, MemoryError):
        problem = "nested too deeply for Python's parser"
    except (ValueError, LookupError) as error:  # undecodable bytes, null characters, a codec that is not for text
        problem = f"not Python text: {error}"
    else:
        return _measure_tree(name, _count_lines(text), tree)
    lines = _count_lines_by_looks(_rows(_newlines(source.decode("latin-1"))))
    return FileMeasures(path=name, lines=lines, problem=_printable(problem)[:200])


_turn = threading.Lock()


@contextmanager
def _quiet() -> Generator[None, None, None]:
    """Silence warnings about the code that is read (invalid escapes, mostly), which is not the reader's code.

    The filters belong to the whole process, so threads that measure take turns. Parsing holds the GIL: no time is lost.
    """
    with _turn, warnings.catch_warnings(action="ignore"):
        yield


def _decode(source: bytes) -> str:
    encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
    return _newlines(source.decode(encoding))


def _newlines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _rows(text: str) -> list[str]:
    rows = text.split("\n")  # not splitlines(): a form feed ends no line in Python
    return rows if rows[-1] else rows[:-1]


def _printable(text: str) -> str:
    """Keep what JSON can carry: a file name may hold bytes that are no text."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _count_lines(text: str) -> Lines:
    rows = _rows(text)
    comment = 0
    continued: set[int] = set()  # rows that begin inside a string
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            (first, column), (last, _) = token.start, token.end
            if token.type == tokenize.COMMENT:
                comment += not rows[first - 1][:column].strip()
            elif last > first:
                continued.update(range(first + 1, last + 1))
    except (tokenize.TokenError, SyntaxError):  # what the parser took and the tokeniser does not
        return _count_lines_by_looks(rows)
    blank = sum(not row.strip() and number not in continued for number, row in enumerate(rows, 1))
    return Lines(total=len(rows), code=len(rows) - comment - blank, comment=comment, blank=blank)


def _count_lines_by_looks(rows: Sequence[str]) -> Lines:
    comment = sum(row.lstrip().startswith("#") for row in rows)
    blank = sum(not row.strip() for row in rows)
    return Lines(total=len(rows), code=len(rows) - comment - blank, comment=comment, blank=blank)


_BRANCHES: Final = frozenset(
    {ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.IfExp, ast.match_case},
)
_BLOCKS: Final = frozenset(
    {ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match},
)
_LEAVES: Final = frozenset({ast.Load, ast.Store, ast.Del, ast.Name, ast.Constant, ast.alias})
"""Nothing in them counts, and they are more than half of a tree."""


@dataclass(slots=True)
class _Scope:
    """A function, or the module around all of them, while its nodes are being counted."""

    name: str
    line: int
    lines: int
    complexity: int = 1
    depth: int = 0
    depth_line: int = 0

    def reach(self, depth: int, line: int) -> None:
        if (depth, -line) > (self.depth, -self.depth_line):
            self.depth, self.depth_line = depth, line

    def measures(self) -> FunctionMeasures:
        return FunctionMeasures(name=self.name, line=self.line, lines=self.lines, complexity=self.complexity, nesting=self.depth)


def _measure_tree(name: str, lines: Lines, tree: ast.Module) -> FileMeasures:
    module = _Scope("<module>", 1, lines.total)
    scopes = [module]
    counts: Counter[type[ast.AST]] = Counter()
    stack: list[tuple[ast.AST, _Scope, int, str]] = [(tree, module, 0, "")]
    while stack:  # a stack of our own: source may nest deeper than Python may recurse
        node, scope, depth, prefix = stack.pop()
        kind = type(node)
        if kind in _BRANCHES:
            scope.complexity += 1
        if kind in _BLOCKS and isinstance(node, ast.stmt):
            depth += 1
            scope.reach(depth, node.lineno)
        if isinstance(node, ast.BoolOp):
            scope.complexity += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            scope.complexity += 1 + len(node.ifs)
        elif isinstance(node, ast.Import | ast.ImportFrom | ast.ClassDef):
            counts[kind] += 1
            if isinstance(node, ast.ClassDef):
                prefix = f"{prefix}{node.name}."[-LONGEST_NAME:]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inner = _Scope((prefix + node.name)[-LONGEST_NAME:], node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1)
            scopes.append(inner)
            for child in ast.iter_child_nodes(node):  # the body is its own; decorators and defaults run outside
                inside = isinstance(child, ast.stmt)
                stack.append((child, inner, 0, f"{inner.name}.") if inside else (child, scope, depth, prefix))
            continue
        for child in ast.iter_child_nodes(node):
            if type(child) not in _LEAVES:
                stack.append((child, scope, depth - (kind is ast.If and _is_elif(child, node)), prefix))
    grades: Counter[Grade] = Counter(grade(scope.complexity) for scope in scopes[1:])
    deepest = min(scopes, key=lambda scope: (-scope.depth, scope.depth_line))
    functions = sorted((scope.measures() for scope in scopes[1:]), key=lambda function: function.line)
    complex_first, long_first = most_complex(functions), longest(functions)
    function_lines = sum(function.lines for function in functions)
    complexity = sum(function.complexity for function in functions)
    return FileMeasures(
        path=name,
        lines=lines,
        functions=len(functions),
        classes=counts[ast.ClassDef],
        imports=counts[ast.Import] + counts[ast.ImportFrom],
        function_lines=function_lines,
        complexity=complexity,
        mean_function_lines=mean(function_lines, len(functions)),
        mean_complexity=mean(complexity, len(functions)),
        longest=next(iter(long_first), None),
        most_complex=next(iter(complex_first), None),
        deepest=Nesting(depth=deepest.depth, line=deepest.depth_line, inside=deepest.name) if deepest.depth else None,
        grades=dict(sorted(grades.items())),
        notable=tuple(dict.fromkeys((*complex_first, *long_first))),
    )


def _is_elif(child: ast.AST, parent: ast.AST) -> bool:
    """The tree has no `elif`: it is an `if` that is alone in the `else` part and starts in its parent's column."""
    return isinstance(child, ast.If) and isinstance(parent, ast.If) and parent.orelse == [child] and child.col_offset == parent.col_offset


_Function = TypeVar("_Function", bound=FunctionMeasures)


def most_complex(functions: Iterable[_Function]) -> list[_Function]:
    """The most complex functions, as many as a ranking holds; ties as they come."""
    return sorted(functions, key=lambda function: -function.complexity)[:KEPT]


def longest(functions: Iterable[_Function]) -> list[_Function]:
    """The longest functions, as many as a ranking holds; ties as they come."""
    return sorted(functions, key=lambda function: -function.lines)[:KEPT]


def mean(total: int, count: int) -> float:
    """The average, rounded for people; 0 of nothing."""
    return round(total / count, 2) if count else 0.0
