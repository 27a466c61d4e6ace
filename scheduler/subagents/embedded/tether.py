"""The owner's end of the pipe to the warden. When it is let go, by `end` or by death, the warden ends the server."""

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from subagents.embedded import warden
from subagents.embedded.directories import Directories
from subagents.embedded.errors import NotTheOwner, ServerNotRunning, ServerNotStarted

END_TIMEOUT = warden.TERMINATION_GRACE + 5.0


@dataclass(frozen=True, slots=True)
class Reply:
    """What the warden says: one of its words, and the process id that the word is about."""

    word: str
    process: int


class Tether:
    """Starts a warden with a server command, and talks to it. One per start of a server."""

    def __init__(self, directories: Directories, command: Sequence[str]) -> None:
        if not sys.executable or getattr(sys, "frozen", False):
            raise ServerNotStarted("this program has no Python interpreter to run its warden with")
        self.owner = os.getpid()
        self._directories = directories
        self._unread = b""
        with directories.log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", warden.__file__),
                    *(str(self.owner), str(directories.private), str(directories.data)),
                    *command,
                ],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )

    def send(self, *commands: str) -> None:
        """Send commands, in order. Raises `NotTheOwner` in a forked child, `ServerNotRunning` without a warden."""
        if os.getpid() != self.owner:
            raise NotTheOwner(self.owner)
        assert self._process.stdin is not None
        try:
            self._process.stdin.write("".join(f"{command}\n" for command in commands).encode())
        except (OSError, ValueError) as error:
            raise ServerNotRunning("the embedded server has ended: its warden is gone") from error

    def reply(self, timeout: float = 0.0) -> Reply | None:
        """Return the warden's next word, or None if it says none within `timeout` seconds."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + timeout
        while b"\n" not in self._unread:
            remaining = max(0.0, deadline - time.monotonic())
            if not select.select([self._process.stdout], [], [], remaining)[0]:
                return None
            said = self._process.stdout.read(4096)
            if not said:
                raise ServerNotRunning("the embedded server has ended: its warden is gone")
            self._unread += said
        line, _, self._unread = self._unread.partition(b"\n")
        word, process = line.decode().split()
        return Reply(word, int(process))

    def end(self) -> None:
        """End the server and the warden, and wait until both are gone. A forked child only lets go of its copy."""
        ours = os.getpid() == self.owner
        if ours:
            # Not by end of file alone: a forked child may hold the pipe too.
            with contextlib.suppress(ServerNotRunning):
                self.send(warden.STOP)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        if ours:
            self._await_end()
            self._directories.remove_private()
        else:
            self._process.returncode = 0  # not a child of this process: nothing to wait for, nothing to warn about

    def _await_end(self) -> None:
        try:
            self._process.wait(END_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
