"""The directories of an embedded server: a short private one for its socket, and one for its data."""

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from subagents.embedded.errors import DirectoryUnusable, ServerNotStarted

PREFIX = "subagents-"
# The kernel takes 103 bytes (macOS) or 107 (Linux) for the path of a socket file.
LONGEST_SOCKET_PATH = 100
LAST_LOG_LINES = 8


@dataclass(frozen=True, slots=True)
class Directories:
    """`private` is short, 0700 and removed at the end; `data` lies in it, or is the caller's and kept."""

    private: Path
    data: Path

    @classmethod
    def make(cls, kept: Path | None) -> Self:
        """Make both. `kept` is where the data is to stay, or None. Raises `DirectoryUnusable`."""
        try:
            if kept is not None:
                kept.mkdir(mode=0o700, parents=True, exist_ok=True)
                kept = kept.resolve()
                if not os.access(kept, os.W_OK | os.X_OK):
                    raise DirectoryUnusable(f"{kept} is not writable: choose another directory")
            private = make_private_directory()
        except OSError as error:
            raise DirectoryUnusable(f"no usable directory for the embedded server: {error}") from error
        data = private / "data" if kept is None else kept
        data.mkdir(mode=0o700, exist_ok=True)
        return cls(private, data)

    @property
    def socket(self) -> Path:
        return socket_in(self.private)

    @property
    def log(self) -> Path:
        return self.data / "server.log"

    def last_log_lines(self, offset: int = 0) -> list[str]:
        """Return the last lines that the server wrote after `offset` bytes of its log."""
        try:
            with self.log.open("rb") as log:
                log.seek(offset)
                lines = log.read().decode(errors="replace").splitlines()
        except OSError:
            return []
        return [line for line in lines if line.strip()][-LAST_LOG_LINES:]

    def remove_private(self) -> None:
        """Remove what the warden has not. It normally has; it cannot when it was itself killed."""
        shutil.rmtree(self.private, ignore_errors=True)


def make_private_directory() -> Path:
    """Return a new directory, 0700, whose path is short enough for a socket even where TMPDIR is deep."""
    for parent in (tempfile.gettempdir(), "/tmp"):
        longest = socket_in(Path(parent, PREFIX + "x" * 8))
        if len(os.fsencode(longest)) <= LONGEST_SOCKET_PATH and os.path.isdir(parent):
            return Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent)).absolute()
    raise ServerNotStarted("no temporary directory with a path short enough for a socket: set TMPDIR to a shorter one")


def socket_in(directory: Path) -> Path:
    return directory / "redis.sock"
