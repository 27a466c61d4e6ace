"""`subagents`, and `python -m subagents.cli`: runs a command and turns whatever happens into an exit code."""

from __future__ import annotations

import io
import signal
import sys
from collections.abc import Sequence

INTERRUPTED = 130
NOT_INSTALLED = 'error: the command line is not installed: run pip install "subagents[cli]"'


def main() -> None:
    """The entry point of the command."""
    try:
        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = INTERRUPTED
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a Ctrl-C during the interpreter's own end is no traceback either
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        import rich  # noqa: F401  # pyright: ignore[reportUnusedImport]
        import typer
    except ImportError:
        print(NOT_INSTALLED, file=sys.stderr)
        return 2
    from subagents.cli.application import application
    from subagents.cli.errors import failure_of, report

    try:
        answer = typer.main.get_command(application).main(args=list(arguments) or ["--help"], prog_name="subagents", standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except Exception as error:
        failure = failure_of(error)
        if failure is None:
            raise
        report(failure, as_json=_wants_json(arguments))
        return failure.exit_code
    return int(answer or 0)


def _wants_json(arguments: Sequence[str]) -> bool:
    """Errors are JSON where answers would be, also the error that the options themselves are wrong."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in own


if __name__ == "__main__":
    main()
