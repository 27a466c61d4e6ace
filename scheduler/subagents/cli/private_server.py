"""The embedded server as commands use it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from subagents.cli.errors import CommandFailed, ExitCode


@asynccontextmanager
async def server_for(url: str | None, *, directory: Path | None = None, port: int | None = None) -> AsyncGenerator[str]:
    """The URL of the server that was named, or of a private one that lasts as long as the block."""
    if url is not None:
        yield url
        return
    from subagents import embedded  # most commands need none

    try:
        started = await asyncio.to_thread(embedded.server, directory=directory, port=port)
    except (embedded.InvalidSetting, embedded.DirectoryInUse, embedded.DirectoryUnusable, embedded.PortInUse) as refused:
        raise CommandFailed("embedded_server", str(refused), ExitCode.USAGE) from None
    except embedded.EmbeddedServerError as failure:
        raise CommandFailed("embedded_server", str(failure), ExitCode.UNREACHABLE) from None
    try:
        yield started.url
    finally:
        await asyncio.to_thread(started.stop)
