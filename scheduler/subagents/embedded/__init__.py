"""A real, private Redis server for laptops, demos and tests.

    from subagents.embedded import server

    with server() as s:
        print(s.url)

The server dies with the process that called `server()`, however that process dies, and leaves nothing behind.

How it holds together: the calling process (the *owner*) starts a *warden*, and the warden starts the server.
`embedded_server` is what users hold, `tether` is the owner's end of the pipe to the warden, and `warden` is the
script at the other end: when the pipe or the owner is gone, so is the server.
"""

from subagents.embedded.embedded_server import EmbeddedServer, server
from subagents.embedded.errors import (
    DirectoryInUse,
    DirectoryUnusable,
    EmbeddedServerError,
    InvalidSetting,
    NotTheOwner,
    PortInUse,
    ServerBinaryNotFound,
    ServerNotRunning,
    ServerNotStarted,
)

__all__ = [
    "DirectoryInUse",
    "DirectoryUnusable",
    "EmbeddedServer",
    "EmbeddedServerError",
    "InvalidSetting",
    "NotTheOwner",
    "PortInUse",
    "ServerBinaryNotFound",
    "ServerNotRunning",
    "ServerNotStarted",
    "server",
]
