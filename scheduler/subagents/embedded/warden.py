"""The warden: a small process between the owner and the server, there to end the server when the owner is gone.

Run as a script, `python -I -S warden.py OWNER PRIVATE DATA COMMAND…`, with the standard library only. Why it is so:

- The owner cannot clean up after its own SIGKILL, and an exit hook does not run on `os._exit`. Another process must.
- It runs in a session of its own, so the Ctrl-C that is meant for the owner reaches neither it nor the server, and
  the server still answers while the owner winds down.
- It learns of the owner's end in two ways. Its stdin is a pipe that the owner holds: end of file comes at once. But
  a child that the owner forked (multiprocessing) holds a copy of that pipe and may live on, so the warden also looks
  at its parent process id, which changes the moment the owner dies, reaped or not.
- It does not ask the kernel for a signal at its parent's death (PR_SET_PDEATHSIG): that one is sent when the *thread*
  that started it ends, and the owner may well have started it from a thread of a pool. The warden itself has a single
  thread, so for the server that signal is right: it covers the kill -9 of the warden (Linux only).
- It is Python and not `sh`, because waiting on a pipe, a parent and a child at once, with time limits, is beyond `sh`.

It also holds the lock on the data directory. The server inherits the lock, so the directory stays refused to others
for as long as anything that can write to it lives.

Commands on stdin and replies on stdout are lines of text. Nothing here may raise because the owner is gone.
"""

import contextlib
import fcntl
import os
import select
import signal
import sys
import time

BEAT = 0.2
"""Seconds between two looks at the parent and the child. The pipe is watched all the time."""

TERMINATION_GRACE = 5.0
"""Seconds that a server gets to write its data and end, before it is killed."""

LOCK_PATIENCE = 1.0
"""Seconds to wait for the data directory: the server of an owner that was just killed needs a moment to end."""

STARTED = "started"  # + the server's process id
EXITED = "exited"  # + the server's process id
IN_USE = "in-use"  # + the process id of the owner whose server uses the data directory

START = "start"
TERMINATE = "terminate"
KILL = "kill"
STOP = "stop"


class Warden:
    """Starts one server, obeys the owner's commands, and ends the server and itself when the owner is gone."""

    def __init__(self, owner: int, private: str, data: str, command: list[str]) -> None:
        self.owner = owner
        self.private = private
        self.data = data
        self.command = command
        self.server: int | None = None
        self.lock: int | None = None
        self.told_to_end = False

    def run(self) -> None:
        try:
            if self.take_lock():
                self.start()
                self.watch()
        finally:
            # Data that is about to be removed needs no orderly end.
            self.end_server(TERMINATION_GRACE if self.keeps_data() else 0.0)
            remove_tree(self.private)

    def keeps_data(self) -> bool:
        return os.path.dirname(self.data) != self.private

    def take_lock(self) -> bool:
        self.lock = os.open(os.path.join(self.data, "server.lock"), os.O_RDWR | os.O_CREAT, 0o600)
        deadline = time.monotonic() + LOCK_PATIENCE
        while not lock_now(self.lock):
            if time.monotonic() > deadline:
                self.say(IN_USE, int(os.read(self.lock, 32) or b"0"))
                return False
            time.sleep(0.02)
        os.ftruncate(self.lock, 0)
        os.write(self.lock, str(self.owner).encode())
        os.set_inheritable(self.lock, True)
        return True

    def watch(self) -> None:
        while not self.told_to_end and os.getppid() == self.owner:
            readable, _, _ = select.select([0], [], [], BEAT)
            self.notice_exit()
            if readable:
                lines = os.read(0, 4096).decode().splitlines()
                if not lines:
                    return
                for line in lines:
                    self.obey(line)

    def obey(self, line: str) -> None:
        if line == START:
            self.start()
        elif line == TERMINATE:
            self.end_server(TERMINATION_GRACE)
        elif line == KILL:
            self.end_server(0.0)
        elif line == STOP:
            self.told_to_end = True

    def start(self) -> None:
        if self.server is not None:
            return
        warden = os.getpid()
        self.server = os.fork()
        if self.server == 0:
            become_server(self.command, warden)
        self.say(STARTED, self.server)

    def notice_exit(self, options: int = os.WNOHANG) -> bool:
        """Reap the server if it has ended, and tell the owner. Return whether there is no server now."""
        if self.server is not None and os.waitpid(self.server, options)[0]:
            self.say(EXITED, self.server)
            self.server = None
        return self.server is None

    def end_server(self, grace: float) -> None:
        if self.server is not None and grace:
            os.kill(self.server, signal.SIGTERM)
            deadline = time.monotonic() + grace
            while not self.notice_exit() and time.monotonic() < deadline:
                time.sleep(0.002)
        if self.server is not None:
            # The whole group, so that a child which rewrites the append-only file goes too.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.server, signal.SIGKILL)
            os.kill(self.server, signal.SIGKILL)
            self.notice_exit(0)

    def say(self, word: str, process: int) -> None:
        with contextlib.suppress(OSError):
            os.write(1, f"{word} {process}\n".encode())


def lock_now(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def become_server(command: list[str], warden: int) -> None:
    """Turn this forked child into the server. The log is the warden's stderr. Never returns."""
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)
        die_with(warden)
        os.execv(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def die_with(warden: int) -> None:
    """Let the kernel kill this process when the warden dies. Linux only, and only where Python has ctypes."""
    if sys.platform != "linux":
        return
    pr_set_pdeathsig = 1
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    if os.getppid() != warden:  # it died before the kernel was asked
        os._exit(127)


def remove_tree(directory: str) -> None:
    """Remove a directory. By hand, because importing `shutil` would cost a third of the warden's start-up."""
    for parent, directories, files in os.walk(directory, topdown=False):
        for name in files:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(parent, name))
        for name in directories:
            with contextlib.suppress(OSError):
                os.rmdir(os.path.join(parent, name))
    with contextlib.suppress(OSError):
        os.rmdir(directory)


def main(arguments: list[str]) -> None:
    # What the owner ignores or blocks is inherited, and an ignored SIGCHLD would hide the server's end.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    owner, private, data, *command = arguments
    warden = Warden(int(owner), private, data, command)

    def end(number: int, frame: object) -> None:
        warden.told_to_end = True

    signal.signal(signal.SIGTERM, end)
    os.chdir("/")
    warden.run()


if __name__ == "__main__":
    main(sys.argv[1:])
