"""Adding measured files up: totals, averages, and the rankings that a reader would ask for."""

import os
from collections import Counter
from collections.abc import Sequence
from typing import Final

from subagents_worker.demo.measure import (
    KEPT,
    FileMeasures,
    Frozen,
    FunctionMeasures,
    Grade,
    Lines,
    Nesting,
    longest,
    mean,
    most_complex,
)

PROBLEMS_KEPT: Final = 100


class RankedFunction(FunctionMeasures):
    """A function of a summary, with the file it stands in."""

    path: str


class RankedFile(Frozen):
    """A file of a summary."""

    path: str
    lines: int
    functions: int
    classes: int
    complexity: int


class RankedNesting(Nesting):
    """The deepest place of a summary, with the file it stands in."""

    path: str


class FileProblem(Frozen):
    """A file that could not be measured, and why."""

    path: str
    problem: str


class Summary(Frozen):
    """Many files added up. `root` is the folder that all of them share; empty if there is none."""

    root: str
    files: int
    unmeasured: int
    lines: Lines
    functions: int
    classes: int
    imports: int
    mean_file_lines: float
    mean_function_lines: float
    mean_complexity: float
    grades: dict[Grade, int]
    most_complex: tuple[RankedFunction, ...]
    longest_functions: tuple[RankedFunction, ...]
    longest_files: tuple[RankedFile, ...]
    deepest: RankedNesting | None
    problems: tuple[FileProblem, ...]


def summarise(measures: Sequence[FileMeasures]) -> Summary:
    """Add measured files up: totals, averages, and the rankings a reader would ask for; ties go by path and line."""
    ordered = sorted(measures, key=lambda file: file.path)
    functions = [RankedFunction(path=file.path, **function.model_dump()) for file in ordered for function in file.notable]
    depths = [(file.path, file.deepest) for file in ordered if file.deepest]
    problems = [FileProblem(path=file.path, problem=file.problem) for file in ordered if file.problem is not None]
    grades: Counter[Grade] = Counter()
    for file in ordered:
        grades.update(file.grades)
    count = sum(file.functions for file in ordered)
    total = sum(file.lines.total for file in ordered)
    path, deepest = min(depths, key=lambda item: -item[1].depth, default=(None, None))
    return Summary(
        root=_shared_folder([file.path for file in ordered]),
        files=len(ordered),
        unmeasured=len(problems),
        lines=Lines(
            total=total,
            code=sum(file.lines.code for file in ordered),
            comment=sum(file.lines.comment for file in ordered),
            blank=sum(file.lines.blank for file in ordered),
        ),
        functions=count,
        classes=sum(file.classes for file in ordered),
        imports=sum(file.imports for file in ordered),
        mean_file_lines=mean(total, len(ordered)),
        mean_function_lines=mean(sum(file.function_lines for file in ordered), count),
        mean_complexity=mean(sum(file.complexity for file in ordered), count),
        grades=dict(sorted(grades.items())),
        most_complex=tuple(most_complex(functions)),
        longest_functions=tuple(longest(functions)),
        longest_files=tuple(_ranked(file) for file in sorted(ordered, key=lambda file: -file.lines.total)[:KEPT]),
        deepest=RankedNesting(path=path, **deepest.model_dump()) if path is not None and deepest else None,
        problems=tuple(problems[:PROBLEMS_KEPT]),
    )


def _ranked(file: FileMeasures) -> RankedFile:
    return RankedFile(
        path=file.path,
        lines=file.lines.total,
        functions=file.functions,
        classes=file.classes,
        complexity=file.most_complex.complexity if file.most_complex else 0,
    )


def _shared_folder(paths: Sequence[str]) -> str:
    try:
        return os.path.commonpath([os.path.dirname(path) for path in paths])
    except ValueError:  # no files, or relative beside absolute paths
        return ""
