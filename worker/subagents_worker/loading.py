"""Loading the modules that declare agents."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from subagents.errors import CallerError
from subagents_worker.registry import Registry, default_registry


class ModuleNotLoaded(CallerError):
    """A module that should declare agents does not import, or declares none."""


def load_agents(modules: Sequence[str]) -> Registry:
    """Import each module (a dotted name, or a path of a .py file) and return the agent types they declare."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    for module in modules:
        try:
            if module.endswith(".py") or os.sep in module:
                _load_path(Path(module))
            else:
                importlib.import_module(module)
        except Exception as failure:
            raise ModuleNotLoaded(f"agent module {module!r} does not import: {_cause(failure)}") from failure
    if not len(default_registry):
        raise ModuleNotLoaded(f'no agent type is declared in {", ".join(modules)}: decorate an async function with @agent("name")')
    return default_registry


def _load_path(path: Path) -> None:
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}")
    name = path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent.resolve()))
    spec.loader.exec_module(module)


def _cause(failure: Exception) -> str:
    """The failure in one line, with the place in the module that raised it."""
    frames = [frame for frame in traceback.extract_tb(failure.__traceback__) if "importlib" not in frame.filename]
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if len(frames) > 1 else ""
    text = " ".join(str(failure).split())
    return f"{type(failure).__name__}: {text}{place}"
