"""One start of the server, from the command to the first answer, or to the reason why there is none."""

import time

from subagents.embedded import warden
from subagents.embedded.address import Address, LoopbackAddress
from subagents.embedded.directories import Directories
from subagents.embedded.errors import DirectoryInUse, EmbeddedServerError, PortInUse, ServerNotRunning, ServerNotStarted
from subagents.embedded.readiness import ReadinessProbe
from subagents.embedded.tether import Reply, Tether

START_TIMEOUT = 10.0
"""Seconds until a started server must answer. Reading kept data back is progress, and has LOAD_TIMEOUT."""

LOAD_TIMEOUT = 300.0

PROBE_INTERVAL = 0.005


class Startup:
    """Made before the server is told to start, so that it can tell this start's log lines from older ones."""

    def __init__(self, directories: Directories, address: Address) -> None:
        self._directories = directories
        self._address = address
        self._log_offset = directories.log.stat().st_size if directories.log.exists() else 0
        self._process: int | None = None
        self._deadline = time.monotonic() + warden.TERMINATION_GRACE + START_TIMEOUT

    def wait(self, tether: Tether) -> int:
        """Return the process id of the server once it answers. Raises `EmbeddedServerError` if it will not."""
        with ReadinessProbe(self._address.url) as probe:
            loading_until = time.monotonic() + LOAD_TIMEOUT
            while time.monotonic() < (loading_until if probe.loading else self._deadline):
                self._consider(self._hear(tether))
                if self._process is not None and probe.process_id() == self._process:
                    return self._process
        raise self._not_started(f"no answer within {START_TIMEOUT:g} s")

    def _hear(self, tether: Tether) -> Reply | None:
        try:
            return tether.reply(PROBE_INTERVAL)
        except ServerNotRunning as error:
            raise self._not_started("its warden ended") from error

    def _consider(self, reply: Reply | None) -> None:
        match reply:
            case Reply(warden.STARTED, process):
                self._process = process
                self._deadline = time.monotonic() + START_TIMEOUT
            case Reply(warden.EXITED, process) if process == self._process:
                raise self._ended()
            case Reply(warden.IN_USE, owner):
                raise DirectoryInUse(self._directories.data, owner)
            case _:
                pass  # nothing new, or the end of the server before this one

    def _ended(self) -> EmbeddedServerError:
        lines = self._directories.last_log_lines(self._log_offset)
        if isinstance(self._address, LoopbackAddress) and any("Failed listening" in line for line in lines):
            return PortInUse(self._address.port)
        return self._not_started("it ended at once")

    def _not_started(self, reason: str) -> ServerNotStarted:
        return ServerNotStarted(reason, self._directories.last_log_lines(self._log_offset))
