"""The demo measures real files: the numbers are exact, and no file, however odd, stops it."""

import os
import sys
import threading
import time
import unicodedata
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from subagents_worker.demo.measure import (
    KEPT,
    LARGEST_SOURCE,
    LONGEST_NAME,
    FileMeasures,
    Lines,
    Nesting,
    default_directory,
    find_sources,
    grade,
    measure_file,
    measure_source,
)
from subagents_worker.demo.summary import Summary, summarise
from subagents_worker.demo.table import WIDTH, render


def measure(source: str) -> FileMeasures:
    measured = measure_source("file.py", dedent(source).encode())
    assert measured.problem is None
    return measured


def complexities(source: str) -> dict[str, int]:
    return {function.name: function.complexity for function in measure(source).notable}


def complexity_of(*body: str) -> int:
    lines = "\n    ".join(line for part in body for line in part.split("\n"))
    return complexities(f"async def f():\n    {lines}\n")["f"]


# ── Complexity


@pytest.mark.parametrize(
    ("body", "complexity"),
    [
        ("pass", 1),
        ("assert a and b", 2),
        ("assert a", 1),
        ("with a: pass", 1),
        ("async with a: pass", 1),
        ("if a: pass", 2),
        ("if a: pass\nelse: pass", 2),
        ("if a: pass\nelif b: pass\nelse: pass", 3),
        ("if a:\n  pass\nelse:\n  if b: pass", 3),
        ("for a in b: pass\nelse: pass", 2),
        ("async for a in b: pass", 2),
        ("while a: pass", 2),
        ("try: pass\nfinally: pass", 1),
        ("try: pass\nexcept A: pass\nexcept B: pass\nelse: pass", 3),
        ("try: pass\nexcept* A: pass", 2),
        ("a if b else c", 2),
        ("[a for a in b]", 2),
        ("[a for b in c for a in b if a if b]", 5),
        ("{a: b for a, b in c}", 2),
        ("(a for a in b if a)", 3),
        ("a or b", 2),
        ("a and b and c", 3),
        ("a and b or c", 3),
        ("match a:\n  case 1: pass\n  case 2 if b: pass\n  case _: pass", 4),
        ("lambda: a if b else c", 2),
        ("not a", 1),
        ("f'{a if b else c}'", 2),
    ],
)
def test_each_branch_adds_one_to_complexity(body: str, complexity: int) -> None:
    assert complexity_of(body) == complexity


def test_a_nested_function_counts_for_itself_only() -> None:
    source = """
        def outer(a):
            if a:
                def inner(b=1 if a else 2):
                    while b:
                        pass
                return inner

            class Local:
                if a:
                    def method(self): return a and self
    """
    assert complexities(source) == {"outer": 4, "outer.inner": 2, "outer.Local.method": 2}


def test_code_outside_functions_has_no_complexity() -> None:
    measured = measure("if a:\n    b = [c for c in d if c]\n")
    assert (measured.functions, measured.complexity, measured.most_complex) == (0, 0, None)
    assert (measured.mean_complexity, measured.mean_function_lines) == (0.0, 0.0)


@pytest.mark.parametrize(("complexity", "letter"), [*zip((1, 5, 6, 10, 11, 21, 31, 40, 41, 999), "AABBCDEEFF", strict=True)])
def test_grades_begin_and_end_where_they_say(complexity: int, letter: str) -> None:
    assert grade(complexity) == letter


# ── Functions, classes, imports


def test_functions_classes_and_imports_are_counted_wherever_they_stand() -> None:
    measured = measure("""
        import os, sys
        from a import (
            b,
            c,
        )

        class One:
            class Two:
                @decorated
                async def deep(self):
                    import late
                    return lambda: 1

            def shallow(self): ...

        def function(
            a,
        ):
            pass
    """)
    assert (measured.functions, measured.classes, measured.imports) == (3, 2, 3)
    assert [(each.name, each.line, each.lines) for each in measured.notable] == [
        ("One.Two.deep", 11, 3),
        ("One.shallow", 15, 1),
        ("function", 17, 4),
    ]
    assert measured.longest is not None
    assert (measured.longest.name, measured.longest.lines) == ("function", 4)
    assert measured.function_lines == 8
    assert measured.mean_function_lines == 2.67


def test_the_most_complex_and_the_longest_are_kept_and_no_more() -> None:
    short = "".join(f"def branchy_{n}(): return {' or '.join('a' * (n + 2))}\n" for n in range(30))
    long = "".join(f"def long_{n}():\n" + "    a\n" * (n + 5) for n in range(30))
    measured = measure(short + long)
    names = [function.name for function in measured.notable]
    assert names == [f"branchy_{n}" for n in range(29, 19, -1)] + [f"long_{n}" for n in range(29, 19, -1)]
    assert measured.functions == 60
    assert measured.most_complex is not None
    assert measured.most_complex.complexity == 31
    assert measured.grades == {"A": 34, "B": 5, "C": 10, "D": 10, "E": 1}


def test_a_name_as_long_as_its_file_is_cut() -> None:
    measured = measure(f"class {'A' * 10_000}:\n    def method(self): pass\n")
    assert measured.longest is not None
    assert measured.longest.name == f"{'A' * (LONGEST_NAME - 7)}.method"


# ── Nesting


@pytest.mark.parametrize(
    ("source", "deepest"),
    [
        ("a = 1\n", None),
        ("if a:\n    pass\n", Nesting(depth=1, line=1, inside="<module>")),
        ("if a: pass\nelif b: pass\nelif c: pass\n", Nesting(depth=1, line=1, inside="<module>")),
        ("if a: pass\nelse:\n    if b: pass\n", Nesting(depth=2, line=3, inside="<module>")),
        ("if a: pass\nelif b:\n    for c in d: pass\n", Nesting(depth=2, line=3, inside="<module>")),
        (
            "def f():\n with a:\n  try: pass\n  except b:\n   while c:\n    match d:\n     case e: pass\n",
            Nesting(depth=4, line=6, inside="f"),
        ),
        ("if a:\n  def f():\n    if b:\n      pass\n", Nesting(depth=1, line=1, inside="<module>")),
        ("if a:\n  class C:\n    if b:\n      pass\n", Nesting(depth=2, line=3, inside="<module>")),
        (
            "def f():\n  if a: pass\n  if b:\n    if c: pass\n  if d:\n    if e: pass\n",
            Nesting(depth=2, line=4, inside="f"),
        ),
    ],
)
def test_nesting_is_blocks_inside_blocks(source: str, deepest: Nesting | None) -> None:
    assert measure(source).deepest == deepest


# ── Lines


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("", Lines()),
        ("\n", Lines(total=1, blank=1)),
        ("a", Lines(total=1, code=1)),
        ("a\n# comment\n\n  # indented\nb  # beside code\n \t\n", Lines(total=6, code=2, comment=2, blank=2)),
        ('"""Docstring.\n\n# no comment\n"""\n\n# comment\n', Lines(total=6, code=4, comment=1, blank=1)),
        ('a = ("b"\n     # comment\n\n     "c")\n', Lines(total=4, code=2, comment=1, blank=1)),
        ('a = f"""{b}\n\n# no comment\n{c}"""\n', Lines(total=4, code=4)),
        ("a = 1 + \\\n  2\n", Lines(total=2, code=2)),
        ("a\r\n\r\n# comment\rb\r\n", Lines(total=4, code=2, comment=1, blank=1)),
        ("a\n\f\n# comment\n", Lines(total=3, code=1, comment=1, blank=1)),
    ],
)
def test_lines_are_code_comment_or_blank(source: str, lines: Lines) -> None:
    measured = measure_source("file.py", source.encode())
    assert (measured.problem, measured.lines) == (None, lines)


# ── Files that are not plain


@pytest.mark.parametrize(
    "source",
    [
        b"\xef\xbb\xbfdef f(): pass\n",
        "# coding: latin-1\ndef f(): return 'é'\n".encode("latin-1"),
        "# -*- coding: utf-8 -*-\ndef f(): return '日本'\n".encode(),
        b"#!/usr/bin/python\n# vim: set fileencoding=cp1252 :\ndef f(): return '\x80'\n",
    ],
)
def test_byte_order_marks_and_coding_lines_are_understood(source: bytes) -> None:
    measured = measure_source("file.py", source)
    assert (measured.problem, measured.functions) == (None, 1)


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (b"a = 1\n\n# comment\ndef f(:\n", "syntax error at line 4"),
        (b"print 'two'\n", "syntax error at line 1"),
        (b"a = '\xe9'\n", "syntax error: invalid or missing encoding declaration"),
        (b"\n\n\na = '\xe9'\n", "not Python text: 'utf-8' codec can't decode"),
        (b"# coding: klingon\n", "syntax error: unknown encoding: klingon"),
        (b"# coding: rot13\n\n", "not Python text: 'rot13' is not a text encoding"),
        (b"# coding: ascii\n\n\n\xff", "not Python text: 'ascii' codec can't decode"),
        (b"\xef\xbb\xbf# coding: latin-1\n", "syntax error: encoding problem: utf-8"),
    ],
)
def test_a_broken_file_says_what_is_wrong_with_it(source: bytes, problem: str) -> None:
    measured = measure_source("file.py", source)
    assert measured.problem is not None
    assert measured.problem.startswith(problem)
    assert measured.functions == 0
    assert measured.lines.total == source.count(b"\n") + (not source.endswith(b"\n"))
    assert measured.lines.code + measured.lines.comment + measured.lines.blank == measured.lines.total


def test_null_characters_are_a_problem() -> None:
    assert measure_source("file.py", b"a = 1\n\0").problem is not None


def test_lines_of_a_broken_file_are_counted_by_their_looks() -> None:
    assert measure_source("file.py", b"a = 1\n\n# comment\ndef f(:\n").lines == Lines(total=4, code=2, comment=1, blank=1)


@pytest.mark.parametrize(
    "source",
    [
        "".join(f"{' ' * depth}if a:\n" for depth in range(200)) + " " * 200 + "pass\n",
        "(" * 200 + ")" * 200,
        "[" * 5_000 + "]" * 5_000,
        "-" * 100_000 + "1",
        "+".join("1" * 100_000),
        "a" + ".b" * 100_000,
        "a" + "()" * 100_000,
        "lambda: " * 10_000 + "1",
        "if a: pass\n" + "elif b: pass\n" * 20_000,
    ],
    ids=["if", "parentheses", "brackets", "minus", "plus", "attributes", "calls", "lambda", "elif"],
)
def test_deep_nesting_gives_a_measure_or_a_problem(source: str) -> None:
    results: list[FileMeasures] = []
    thread = threading.Thread(target=lambda: results.append(measure_source("deep.py", source.encode())))
    thread.start()  # agents measure in threads, whose stacks are small
    thread.join()
    assert measure_source("deep.py", source.encode()) == results[0]
    assert results[0].lines.total == source.count("\n") + (not source.endswith("\n"))


def test_ninety_levels_are_measured() -> None:
    source = "".join(f"{' ' * depth}if a:\n" for depth in range(90)) + " " * 90 + "pass\n"
    assert measure(source).deepest == Nesting(depth=90, line=90, inside="<module>")


def test_warnings_about_the_code_that_is_read_stay_silent() -> None:
    before = list(warnings.filters)
    with ThreadPoolExecutor(8) as threads:
        measured = list(threads.map(measure, [r"a = '\d'"] * 200))
    assert {each.problem for each in measured} == {None}
    assert list(warnings.filters) == before


@given(st.text())
@example("\ud800")
@example("# coding: utf-7\n\n'+2AA-'")
@example("# coding: unicode_escape\n\n'\\\\d'")
@example("# coding: idna\n\n.")
@example("# coding: undefined\n")
@example("# coding: zlib\n")
@example("\f#\n\\")
@example("if a:\n\tb\n        c")
def test_no_text_makes_it_raise(text: str) -> None:
    measured = measure_source("file.py", text.encode("utf-8", "surrogatepass"))
    assert measured.lines.code + measured.lines.comment + measured.lines.blank == measured.lines.total
    assert FileMeasures.model_validate_json(measured.model_dump_json()) == measured
    render(summarise([measured]))


@given(st.lists(st.sampled_from(["if a:", "\n", " ", '"""', "#", "def f():", "\\", "(", ")", "f'{", "}'", "x", ":", "\f"])))
def test_no_mix_of_python_makes_it_raise(parts: list[str]) -> None:
    measured = measure_source("file.py", "".join(parts).encode())
    assert measured.lines.code + measured.lines.comment + measured.lines.blank == measured.lines.total


@given(st.binary())
def test_no_bytes_make_it_raise(source: bytes) -> None:
    assert measure_source("file.py", source).lines.total >= 0


# ── Reading and finding files


def test_a_missing_file_raises(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        measure_file(tmp_path / "missing.py")
    (tmp_path / "file.py").touch()
    with pytest.raises(NotADirectoryError):
        measure_file(tmp_path / "file.py" / "below.py")


def test_what_is_no_source_file_is_a_problem(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "large.py").write_bytes(b"\n" * (LARGEST_SOURCE + 1))
    (tmp_path / "round.py").symlink_to("round.py")
    assert measure_file(tmp_path).problem == "not a regular file"
    assert measure_file(tmp_path / "pipe.py").problem == "not a regular file"
    assert measure_file(tmp_path / "large.py").problem == f"larger than {LARGEST_SOURCE:,} bytes"
    assert "not readable" in (measure_file(tmp_path / "round.py").problem or "")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_a_file_name_that_is_no_text_travels_as_json(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\x1b[2J.py"))
    path.write_text("def f(): pass\n")
    measured = measure_file(find_sources(tmp_path)[0])
    assert FileMeasures.model_validate_json(measured.model_dump_json()) == measured
    assert measured.functions == 1
    assert "\x1b" not in render(summarise([measured]))


def test_sources_are_found_in_order_and_without_the_rest(tmp_path: Path) -> None:
    wanted = ["a.py", "b/__init__.py", "b/c/d.py", "b.py", "b-c.py", "test/t.py", "z.py"]
    skipped = [".hidden/a.py", ".a.py", "__pycache__/a.py", "lib/site-packages/a.py", "b/readme.txt", "a.pyc"]
    for name in wanted + skipped:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "b" / "loop").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "dangling.py").symlink_to("nowhere.py")
    (tmp_path / "folder.py").mkdir()
    found = find_sources(tmp_path)
    assert found == sorted(tmp_path / name for name in wanted)
    assert [find_sources(tmp_path, limit) for limit in (0, 3, 99)] == [[], found[:3], found]


def test_a_directory_that_is_none_raises(tmp_path: Path) -> None:
    (tmp_path / "file.py").touch()
    with pytest.raises(FileNotFoundError):
        find_sources(tmp_path / "missing")
    with pytest.raises(NotADirectoryError):
        find_sources(tmp_path / "file.py")
    with pytest.raises(ValueError, match="islice"):
        find_sources(tmp_path, -1)


# ── Summary and table


def test_a_summary_adds_up_and_ranks() -> None:
    files = [
        measure_source("/src/pkg/b.py", b"import a\n\ndef f():\n    if a:\n        if b: pass\n"),
        measure_source("/src/a.py", b"# comment\nclass C:\n    def m(self): return a or b\n"),
        measure_source("/src/bad.py", b"def\n"),
    ]
    summary = summarise(files)
    assert (summary.root, summary.files, summary.unmeasured) == ("/src", 3, 1)
    assert summary.lines == Lines(total=9, code=7, comment=1, blank=1)
    assert (summary.functions, summary.classes, summary.imports) == (2, 1, 1)
    assert (summary.mean_file_lines, summary.mean_function_lines, summary.mean_complexity) == (3.0, 2.0, 2.5)
    assert [(each.path, each.name, each.complexity) for each in summary.most_complex] == [
        ("/src/pkg/b.py", "f", 3),
        ("/src/a.py", "C.m", 2),
    ]
    assert [each.path for each in summary.longest_files] == ["/src/pkg/b.py", "/src/a.py", "/src/bad.py"]
    assert summary.deepest is not None
    assert (summary.deepest.path, summary.deepest.depth, summary.deepest.line) == ("/src/pkg/b.py", 2, 5)
    assert [each.path for each in summary.problems] == ["/src/bad.py"]
    assert summarise(files[::-1]) == summary
    assert Summary.model_validate_json(summary.model_dump_json()) == summary


def test_the_table_reads_well() -> None:
    summary = summarise(
        [
            measure_source("/src/pkg/b.py", b"def f():\n    if a:\n        if b: pass\n\nclass C:\n    def m(self): pass\n"),
            measure_source("/src/bad.py", b"def\n"),
        ],
    )
    table = render(summary)
    assert "2 files · 7 lines · 2 functions · 1 class · 0 imports" in table
    assert "deepest nesting 2 blocks, in f, pkg/b.py:3" in table
    assert "code                 6   85.7%  █████████████████████████▊" in table
    assert "   complexity  lines  function  where\nA           3      3  f         pkg/b.py:1\n" in table
    assert "bad.py: syntax error at line 1: invalid syntax" in table


def test_nothing_measured_is_still_a_table() -> None:
    assert "0 files · 0 lines" in render(summarise([]))


@given(st.text(min_size=1), st.text(min_size=1), st.integers(1, 10**12))
@example("/" + "深" * 200, "名" * 300, 1)
@example("/" + "e\u0301" * 200, "e\u0301" * 300, 10**12)
def test_the_table_is_never_wider_than_a_terminal(path: str, name: str, number: int) -> None:
    summary = summarise([measure_source("/a/b.py", b"def f(): pass\n"), measure_source("/a/c.py", b"def\n")])
    function = summary.most_complex[0].model_copy(
        update={"path": path, "name": name, "lines": number, "complexity": number},
    )
    odd = summary.model_copy(update={"most_complex": (function,), "longest_functions": (function,), "root": path})
    assert all(_terminal_columns(line) <= WIDTH for line in render(odd).split("\n"))


def _terminal_columns(line: str) -> int:
    widths = (0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in line)
    return sum(widths)


def test_the_standard_library_is_measured_whole() -> None:
    sources = find_sources(default_directory())
    started = time.process_time()
    measured = [measure_file(path) for path in sources]
    seconds = time.process_time() - started
    summary = summarise(measured)
    print(f"{len(sources)} files, {summary.lines.total:,} lines in {seconds:.1f} s of one core")
    assert len(sources) > 200
    assert sources == sorted(sources)
    assert [each.path for each in measured if each.problem] == []
    assert all(each.lines.total == each.lines.code + each.lines.comment + each.lines.blank for each in measured)
    assert sum(summary.grades.values()) == summary.functions > 5_000
    assert len(summary.most_complex) == len(summary.longest_functions) == len(summary.longest_files) == KEPT
    assert max(map(len, render(summary).split("\n"))) <= WIDTH
