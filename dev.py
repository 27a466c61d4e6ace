#!/usr/bin/env python3
"""The one way into this project: sets up what a word needs, then does it.

    python3 dev.py demo [ARGUMENTS]   run the demo: `subagents demo …` on a server of its own
    python3 dev.py test [ARGUMENTS]   run the tests: `pytest …`
    python3 dev.py check              all that a reviewer wants: lint, types, layers, test, build
    python3 dev.py lint               ruff: rules and format
    python3 dev.py types              mypy and pyright, both strict
    python3 dev.py layers             import-linter: the arrows between the packages
    python3 dev.py build              build the wheel, install it into new environments, try it there
    python3 dev.py examples           run each example and compare what it prints
    python3 dev.py sync               only set up

It needs Python 3.11 or later with pip, or uv. All it installs goes into `.bootstrap` (uv) and `.venv` (the rest)
beside this file, from uv.lock; the system's Python is left as it is.
"""

from __future__ import annotations

import difflib
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent
BOOTSTRAP = ROOT / ".bootstrap"
ENVIRONMENT = ROOT / ".venv"
PROGRAMS = ENVIRONMENT / "bin"
PYTHON = PROGRAMS / "python"
PACKAGES = (ROOT / "scheduler" / "subagents", ROOT / "worker" / "subagents_worker")

OLDEST_UV = (0, 9, 0)  # older ones do not know the uv.lock that we write
UV_REQUIREMENT = "uv>=0.9,<1"
DEVELOPMENT = ("--locked", "--all-groups")
DEMONSTRATION = ("--locked", "--no-dev", "--inexact", "--extra", "all")  # inexact: leaves a developer's tools in place

PATIENCE_SECONDS = 2.0  # set-up that takes longer says what it does
EXAMPLE_SECONDS = 120.0

UNWANTED_BY_CLIENT = ("arq", "typer", "fastapi")
TRY_CLIENT = f"""
import importlib.util, sys
import subagents
from subagents import Pool
assert subagents.__file__.startswith(sys.prefix), f"imported from {{subagents.__file__}}, not from the wheel"
found = [name for name in {UNWANTED_BY_CLIENT!r} if importlib.util.find_spec(name)]
assert not found, f"the base install brought {{', '.join(found)}}"
"""
RUN_EXAMPLE = """
import os, subprocess, sys
from subagents.embedded import server
with server() as running:
    environment = {**os.environ, "SUBAGENTS_REDIS_URL": running.url}
    sys.exit(subprocess.run([sys.executable, sys.argv[1]], env=environment).returncode)
"""


class Failure(Exception):
    """Something did not work; its text is the one line to show."""


def main(arguments: Sequence[str]) -> int:
    """Do the word that `arguments` begin with, and return the exit code."""
    word, rest = (arguments[0], arguments[1:]) if arguments else ("help", ())
    if word in ("help", "-h", "--help"):
        print(__doc__)
        return 0
    try:
        perform(word, rest)
    except Failure as failure:
        print(f"dev.py: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0


def perform(word: str, rest: Sequence[str]) -> None:
    """Set up what `word` needs, and do it."""
    if word in PASSING_ON:
        settings, folder, program = PASSING_ON[word]
        synchronise(settings)
        become(folder, *program, *rest)
    if word not in STEPS and word not in ("check", "sync"):
        raise Failure(f"unknown word {word!r}; `python3 dev.py help` lists them")
    if rest:
        raise Failure(f"`{word}` takes no arguments")
    synchronise(DEVELOPMENT)
    if word == "check":
        check()
    elif word in STEPS:
        STEPS[word]()


# --- set-up ---


def synchronise(settings: Sequence[str]) -> None:
    """Bring `.venv` to what uv.lock says."""
    command: list[str | Path] = [find_uv(), "sync", *settings]
    if not PYTHON.exists():
        command += ["--python", sys.executable]
    run_quietly(command, "setting up .venv (once, about a minute)", "could not set up .venv")


def find_uv() -> Path:
    """Return a uv that is new enough: the one on PATH, or one of our own in `.bootstrap`."""
    own = BOOTSTRAP / "bin" / "uv"
    on_path = shutil.which("uv")
    for candidate in ([Path(on_path)] if on_path else []) + [own]:
        if version_of_uv(candidate) >= OLDEST_UV:
            return candidate
    fetch_uv(own.parent)
    return own


def version_of_uv(program: Path) -> tuple[int, ...]:
    """Return the version of that uv, or () if it does not run."""
    try:
        answer = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    found = re.match(r"uv (\d+)\.(\d+)\.(\d+)", answer.stdout)
    return tuple(int(part) for part in found.groups()) if found else ()


def fetch_uv(target: Path) -> None:
    """Put the program uv into the folder `target`, with pip.

    `--target` is what a system's Python lets pip do also where it refuses installs (PEP 668), and needs no venv.
    The folder appears whole or not at all, so an interrupted set-up is simply done again.
    """
    BOOTSTRAP.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BOOTSTRAP) as scratch:
        fetched = Path(scratch, "uv")
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
        run_quietly(
            [*pip, "install", "--no-user", "--target", fetched, UV_REQUIREMENT],
            "fetching uv",
            f"could not install uv with the pip of {sys.executable}; install pip or uv, and try again",
            {"PIP_REQUIRE_VIRTUALENV": "0"},
        )
        shutil.rmtree(target, ignore_errors=True)
        with suppress(OSError):  # another set-up was quicker, and its uv is as good
            fetched.joinpath("bin").rename(target)  # the rest is Python around the program, not needed here


def run_quietly(command: Sequence[str | Path], notice: str, complaint: str, changes: Mapping[str, str] | None = None) -> None:
    """Run a set-up command; show `notice` if it takes long, and what it printed only if it fails."""
    with tempfile.TemporaryFile("w+") as output:
        process = start(command, changes, output.fileno())
        try:
            code = wait_with_notice(process, notice)
        finally:
            process.kill()
            process.wait()
        if code:
            output.seek(0)
            sys.stderr.write(output.read())
            raise Failure(complaint)


def wait_with_notice(process: subprocess.Popen[bytes], notice: str) -> int:
    """Wait for the end of the process, and print `notice` if that takes long."""
    try:
        return process.wait(PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        print(f"dev.py: {notice} …", file=sys.stderr, flush=True)
        return process.wait()


# --- running programs ---


def environment(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this process's environment, fit for programs of `.venv`."""
    settings = {key: value for key, value in os.environ.items() if key not in ("VIRTUAL_ENV", "PYTHONHOME")}
    if has_certificates():
        settings.setdefault("UV_SYSTEM_CERTS", "true")  # trust whom the machine, and so its pip, trusts
    return {
        **settings,
        "PATH": os.pathsep.join((str(PROGRAMS), settings.get("PATH", os.defpath))),
        "UV_PROJECT_ENVIRONMENT": str(ENVIRONMENT),
        "UV_PYTHON_DOWNLOADS": "never",  # the Python that is here will do, and downloads come from elsewhere than PyPI
        "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1",  # or it asks the network for newer versions
        **(changes or {}),
    }


def has_certificates() -> bool:
    """Whether this machine has a certificate store; uv brings one of its own."""
    paths = ssl.get_default_verify_paths()
    return bool(paths.cafile) or (bool(paths.capath) and any(Path(paths.capath).iterdir()))


def start(command: Sequence[str | Path], changes: Mapping[str, str] | None = None, output: int | None = None) -> subprocess.Popen[bytes]:
    """Start a program at the project's root."""
    try:
        return subprocess.Popen(command, cwd=ROOT, env=environment(changes), stdout=output, stderr=output)
    except OSError as error:
        raise Failure(f"could not run {command[0]}: {error.strerror}") from error


def run(*command: str | Path) -> None:
    """Run a program at the project's root, in sight; raise `Failure` if it fails."""
    with start(command) as process:
        code = process.wait()
    if code:
        raise Failure(f"{Path(command[0]).name} failed (exit code {code})")


def run_each(*commands: Sequence[str | Path]) -> None:
    """Run these programs, also after one has failed; raise `Failure` if any did."""
    failures: list[Failure] = []
    for command in commands:
        try:
            run(*command)
        except Failure as failure:
            failures.append(failure)
    if failures:
        raise Failure("; ".join(map(str, failures)))


def become(folder: Path, program: str, *arguments: str) -> NoReturn:
    """Replace this process by a program of `.venv`, so that signals and its exit code need no passing on."""
    path = PROGRAMS / program
    if not path.exists():
        raise Failure(f"{path.relative_to(ROOT)} is missing; remove .venv and try again")
    os.chdir(folder)
    os.execve(path, [str(path), *arguments], environment())


# --- the steps of a review ---


def lint() -> None:
    """Ruff's rules and format."""
    run_each((PROGRAMS / "ruff", "check"), (PROGRAMS / "ruff", "format", "--check"))


def types() -> None:
    """Both type checkers: each finds what the other lets pass."""
    run_each((PROGRAMS / "mypy",), (PROGRAMS / "pyright", "--pythonpath", PYTHON))


def layers() -> None:
    """The arrows between the packages."""
    run(PROGRAMS / "lint-imports")


def test() -> None:
    """All tests."""
    run(PROGRAMS / "pytest")


def check() -> None:
    """Do every step, also after one has failed, and say how each went."""
    failed = [name for name, step in STEPS.items() if not succeeds(name, step)]
    if failed:
        raise Failure(f"failed: {', '.join(failed)}")
    print(f"dev.py: all good: {', '.join(STEPS)}")


def succeeds(name: str, step: Callable[[], None]) -> bool:
    """Do one step, with its name before it and its duration after it."""
    print(f"=== {name}", flush=True)
    began = time.monotonic()
    try:
        step()
    except Failure as failure:
        print(f"--- {name}: {failure}", flush=True)
        return False
    print(f"--- {name}: ok, {time.monotonic() - began:.1f} s", flush=True)
    return True


# --- build ---


def build() -> None:
    """Build the wheel, try it in new environments, and leave in `dist` what passed."""
    uv = find_uv()
    with tempfile.TemporaryDirectory(prefix="subagents-build-") as name:
        scratch = Path(name)
        run(uv, "build", "--quiet", "--out-dir", scratch / "dist")
        wheel = only(scratch.joinpath("dist").glob("*.whl"))
        inspect_wheel(wheel)
        constraints = scratch / "constraints.txt"
        export = ("export", "--quiet", "--locked", "--all-extras", "--no-dev", "--no-emit-project", "--no-hashes")
        run(uv, *export, "--output-file", constraints)
        try_client(uv, wheel, constraints)
        try_command_line(uv, wheel, constraints)
        shutil.copytree(scratch / "dist", ROOT / "dist", dirs_exist_ok=True)
    print(f"built and tried {wheel.name}")


def only(paths: Iterator[Path]) -> Path:
    """Return the one path that there is."""
    found = list(paths)
    if len(found) != 1:
        raise Failure(f"expected one wheel, found {len(found)}")
    return found[0]


def inspect_wheel(wheel: Path) -> None:
    """Check that the wheel has every script and marker of the source, and nothing beside the two packages."""
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    wanted = set(files_that_are_no_modules())
    carried = {name for name in packed if name.endswith((".lua", "py.typed"))}
    if wanted != carried:
        different = sorted(wanted ^ carried)
        raise Failure(f"the wheel and the source differ in {len(different)} files, first {different[0]}")
    tops = {name.partition("/")[0] for name in packed if ".dist-info/" not in name}
    if tops != {package.name for package in PACKAGES}:
        raise Failure(f"the wheel would install {', '.join(sorted(tops))}")


def files_that_are_no_modules() -> Iterator[str]:
    """Yield the scripts and typing markers of the source, named as a wheel names them."""
    for package in PACKAGES:
        yield f"{package.name}/py.typed"
        for script in package.rglob("*.lua"):
            yield script.relative_to(package.parent).as_posix()


def try_client(uv: Path, wheel: Path, constraints: Path) -> None:
    """Check that the bare wheel gives a client, and brings nothing that only workers and terminals need."""
    with new_environment(uv, str(wheel), constraints) as programs:
        run(programs / "python", "-I", "-c", TRY_CLIENT)


def try_command_line(uv: Path, wheel: Path, constraints: Path) -> None:
    """Check that the wheel with all extras gives a command that answers."""
    with new_environment(uv, f"{wheel}[all]", constraints) as programs:
        run(programs / "subagents", "--help")


@contextmanager
def new_environment(uv: Path, requirement: str, constraints: Path) -> Generator[Path, None, None]:
    """A new environment that has only `requirement`, in the locked versions; yields the folder of its programs."""
    with tempfile.TemporaryDirectory(prefix="subagents-install-") as name:
        programs = Path(name, "env", "bin")
        run(uv, "venv", "--quiet", "--python", PYTHON, programs.parent)
        install = ("pip", "install", "--quiet", "--python", programs / "python", "--constraint", constraints)
        run(uv, *install, requirement)
        yield programs


# --- examples ---


def examples() -> None:
    """Run each example on a server of its own, and compare what it prints with the `.out` file beside it."""
    paths = sorted(ROOT.joinpath("examples").glob("*.py"))
    wrong = [path.name for path in paths if not prints_as_expected(path)]
    if wrong:
        raise Failure(f"wrong: {', '.join(wrong)}")
    print(f"{len(paths)} examples printed what they should")


def prints_as_expected(example: Path) -> bool:
    """Run one example; show what is wrong with it, if anything is."""
    expected = example.with_suffix(".out")
    if not expected.exists():
        print(f"{example.name}: {expected.name} is missing", file=sys.stderr)
        return False
    code, printed = run_example(example)
    if code != 0:
        print(f"{example.name}: {describe_exit(code)}; it printed:\n{printed}", file=sys.stderr)
        return False
    wanted = expected.read_text(encoding="utf-8").splitlines()
    difference = list(difflib.unified_diff(wanted, printed.splitlines(), expected.name, "printed", lineterm=""))
    print(*difference, sep="\n", end="\n" if difference else "", file=sys.stderr)
    return not difference


def run_example(example: Path) -> tuple[int | None, str]:
    """Return the exit code of an example, None if it took too long, and what it printed."""
    process = subprocess.Popen(
        [PYTHON, "-c", RUN_EXAMPLE, example],
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # so that all it started can be ended with it
    )
    try:
        printed, _ = process.communicate(timeout=EXAMPLE_SECONDS)
        return process.returncode, printed
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return None, process.communicate()[0]
    except KeyboardInterrupt:
        os.killpg(process.pid, signal.SIGINT)
        raise


def describe_exit(code: int | None) -> str:
    """Say how an example ended, in words."""
    return f"still ran after {EXAMPLE_SECONDS:.0f} s" if code is None else f"ended with exit code {code}"


# A word here becomes that program, with all further arguments: (what to set up, where to run, the program).
PASSING_ON: Mapping[str, tuple[Sequence[str], Path, Sequence[str]]] = {
    "demo": (DEMONSTRATION, Path(), ("subagents", "demo")),  # where the user is: an argument may be a path
    "test": (DEVELOPMENT, ROOT, ("pytest",)),
}
# A word here is one step of `check`, which does them in this order.
STEPS: Mapping[str, Callable[[], None]] = {
    "lint": lint,
    "types": types,
    "layers": layers,
    "test": test,
    "examples": examples,
    "build": build,
}

if __name__ == "__main__":
    if sys.version_info < (3, 11):  # noqa: UP036 - it is here that an older one must be told
        sys.exit(f"dev.py: needs Python 3.11 or later; this is {sys.version.split()[0]} ({sys.executable})")
    sys.exit(main(sys.argv[1:]))
