"""The command line of an embedded server."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from subagents.embedded.address import Address
from subagents.embedded.errors import InvalidSetting

AppendFsync = Literal["always", "everysec", "no"]


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What the caller chose about the server itself. Checked when made; raises `InvalidSetting`."""

    appendfsync: AppendFsync = "everysec"
    maxmemory: int | str | None = None
    extra: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.appendfsync not in get_args(AppendFsync):
            raise InvalidSetting(f"appendfsync must be always, everysec or no, not {self.appendfsync!r}")
        if isinstance(self.extra, str):
            raise InvalidSetting('extra must be a sequence of arguments, as in ["--hz", "50"], not one string')


def server_command(binary: Path, settings: ServerSettings, address: Address, data: Path) -> list[str]:
    """Return the command. Of an option given twice the server takes the last, and the order here uses that:
    defaults, then what the caller asks for in `extra`, then what supervision depends on.
    """
    defaults = [
        *("--appendonly", "yes", "--save", ""),
        *("--appendfsync", settings.appendfsync),
        # A pool that loses keys to eviction has lost permits: a full server must refuse writes instead.
        *("--maxmemory-policy", "noeviction"),
    ]
    if settings.maxmemory is not None:
        defaults += ["--maxmemory", str(settings.maxmemory)]
    supervised = ["--daemonize", "no", "--supervised", "no", "--dir", str(data), *address.arguments]
    return [str(binary), *defaults, *settings.extra, *supervised]
