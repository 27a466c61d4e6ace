"""A small process between a command and the workers it starts, there to stop them when the command is gone.

Run as a script, `python -I -S leash.py OWNER GRACE COMMAND…`, with the standard library only. A command that is killed cannot stop its
workers; and the Ctrl-C that is meant for a command must not reach its workers first, so this process has a session of its own. It learns
of its owner's end from the pipe on its stdin, and from its parent process id, as a child that the owner forked may hold that pipe too.

Each byte on stdin passes SIGTERM on, the third kills. It ends with the exit code of the workers.
"""

import contextlib
import os
import select
import signal
import sys
import time

BEAT = 0.1
KILLING_WORD = 3


class Leash:
    """Holds one process and what that one has started."""

    def __init__(self, owner: int, grace: float, command: list[str]) -> None:
        self.owner, self.grace, self.command = owner, grace, command
        self.words = 0
        self.deadline: float | None = None

    def hold(self) -> int:
        held = os.fork()
        if held == 0:
            become(self.command)
        while True:
            ended, status = os.waitpid(held, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
            self.listen(held)
            if self.words >= KILLING_WORD or (self.deadline is not None and time.monotonic() > self.deadline):
                kill_group(held)

    def listen(self, held: int) -> None:
        if self.deadline is not None:
            time.sleep(BEAT)
            return
        readable, _, _ = select.select([0], [], [], BEAT)
        heard = os.read(0, 64) if readable else b""
        if os.getppid() != self.owner or (readable and not heard):
            self.deadline = time.monotonic() + self.grace
            heard = b"."
        for _ in heard:
            self.words += 1
            with contextlib.suppress(ProcessLookupError):
                os.kill(held, signal.SIGTERM)


def become(command: list[str]) -> None:
    """Turn this forked child into the command, in a group of its own. Never returns."""
    try:
        os.setpgid(0, 0)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.execv(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def kill_group(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


if __name__ == "__main__":
    for unwanted in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(unwanted, signal.SIG_IGN)
    owner, grace, *command = sys.argv[1:]
    sys.exit(Leash(int(owner), float(grace), command).hold())
