"""What a user gets: the two commands of the README, the files of the wheel, and an import that stays light."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import subagents

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("arq", "typer", "rich", "fastapi", "pydantic_settings")
IMPORT_AND_TELL = "import json, sys, subagents; print(json.dumps([subagents.__file__, sorted(sys.modules)]))"


def project() -> dict[str, Any]:
    """What pyproject.toml says."""
    return tomllib.loads(ROOT.joinpath("pyproject.toml").read_text(encoding="utf-8"))


def first_code_block(heading: str) -> list[str]:
    """The lines of the first code block under that heading of the README, without empty ones."""
    readme = ROOT.joinpath("README.md").read_text(encoding="utf-8")
    section = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", readme, re.MULTILINE | re.DOTALL)
    assert section is not None, f"README.md has no '## {heading}'"
    block = re.search(r"^```\w*\n(.*?)^```$", section[1], re.MULTILINE | re.DOTALL)
    assert block is not None, f"'## {heading}' has no code block"
    return [line for line in block[1].splitlines() if line.strip()]


def wheel_packages() -> list[Path]:
    """The folders that go into the wheel."""
    packages: list[str] = project()["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    return [ROOT / package for package in packages]


@pytest.mark.parametrize(("heading", "command"), [("Run it", "python3 dev.py demo"), ("Test it", "python3 dev.py test")])
def test_the_readme_gives_one_command(heading: str, command: str) -> None:
    assert first_code_block(heading) == [command]


def test_every_script_lies_in_a_package_of_the_wheel() -> None:
    packages = wheel_packages()
    scripts = [path for folder in ("scheduler", "worker") for path in ROOT.joinpath(folder).rglob("*.lua")]
    assert scripts, "no scripts found"
    strays = [str(script) for script in scripts if not any(script.is_relative_to(package) for package in packages)]
    assert strays == []


def test_both_packages_are_typed() -> None:
    assert [package.name for package in wheel_packages()] == ["subagents", "subagents_worker"]
    assert all(package.joinpath("py.typed").is_file() for package in wheel_packages())


def test_importing_the_client_stays_light() -> None:
    answer = subprocess.run([sys.executable, "-I", "-c", IMPORT_AND_TELL], capture_output=True, text=True, timeout=60, check=True)
    origin, modules = json.loads(answer.stdout)
    assert Path(origin).is_relative_to(ROOT), "the tests run against another copy of subagents"
    assert {name.partition(".")[0] for name in modules}.isdisjoint({*HEAVY, "subagents_worker"})


def test_the_version_stands_in_one_place() -> None:
    version: str = project()["project"]["version"]
    assert subagents.__version__ == version
    sources = [path for package in wheel_packages() for path in package.rglob("*.py")]
    repeats = [str(path) for path in sources if re.search(rf"""["']{re.escape(version)}["']""", path.read_text(encoding="utf-8"))]
    assert repeats == [], "pyproject.toml has the version; code asks importlib.metadata"


def test_the_lock_names_the_public_index_only() -> None:
    lock = tomllib.loads(ROOT.joinpath("uv.lock").read_text(encoding="utf-8"))
    registries = {package["source"]["registry"] for package in lock["package"] if "registry" in package["source"]}
    assert registries == {"https://pypi.org/simple"}
    files = [file for package in lock["package"] for file in package.get("wheels", [])]
    assert {file["url"].split("/")[2] for file in files} == {"files.pythonhosted.org"}
