"""Where an embedded server listens: a private socket file, or a port of the loopback interface. Never elsewhere."""

import secrets
import socket
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from subagents.embedded.errors import InvalidSetting, ServerNotStarted

LOOPBACK = "127.0.0.1"
HIGHEST_PORT = 65_535
# Below the ports that Linux and macOS hand to outgoing connections. In that range a client that reconnects while the
# server is down can be given the server's own port, connect to itself, and so keep the server from coming back.
FREE_PORTS = range(20_000, 32_000)
FREE_PORT_ATTEMPTS = 100


@dataclass(frozen=True, slots=True)
class SocketAddress:
    """A unix socket. Only the user who owns its directory can reach it."""

    path: Path

    @property
    def url(self) -> str:
        return f"unix://{quote(str(self.path))}?db=0"

    @property
    def arguments(self) -> list[str]:
        return ["--port", "0", "--unixsocket", str(self.path), "--unixsocketperm", "700"]


@dataclass(frozen=True, slots=True)
class LoopbackAddress:
    """A TCP port of this machine that other machines cannot reach; other users of this machine can."""

    port: int

    @property
    def url(self) -> str:
        return f"redis://{LOOPBACK}:{self.port}/0"

    @property
    def arguments(self) -> list[str]:
        return ["--bind", LOOPBACK, "--port", str(self.port)]


Address = SocketAddress | LoopbackAddress


def choose_address(port: int | None, socket_path: Path) -> Address:
    """Return the socket for `port=None`, a free port for 0, and otherwise that port."""
    if port is None:
        return SocketAddress(socket_path)
    if not 0 <= port <= HIGHEST_PORT:
        raise InvalidSetting(f"port must be from 0 (a free one) to {HIGHEST_PORT}, not {port}")
    return LoopbackAddress(port or free_port())


def free_port() -> int:
    """Return a port that nobody listens on now. Somebody may a moment later, so the caller must be ready to retry."""
    for _ in range(FREE_PORT_ATTEMPTS):
        port = secrets.choice(FREE_PORTS)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
        return port
    raise ServerNotStarted(f"no free port among {FREE_PORT_ATTEMPTS} tries")
