"""A real Redis or Valkey server for tests, started on a free port (``DEPENDENCIES`` of the tests)."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

START_LIMIT_S = 10.0
_PROGRAMS = ("redis-server", "valkey-server")


def find_server() -> str:
    """Return the path of a server program.

    Raises:
        FileNotFoundError: There is none: a missing server is a failure, tests do not skip it.
    """
    named = os.environ.get("TOWLINE_TEST_REDIS_SERVER")
    for program in (named,) if named else _PROGRAMS:
        found = shutil.which(program)
        if found:
            return found
    raise FileNotFoundError(
        "no redis-server or valkey-server on PATH: install one (apt-get install redis-server), or name it in "
        "TOWLINE_TEST_REDIS_SERVER"
    )


class RedisTestServer:
    """One server process with its own folder. ``persistent``: an append-only file, fsynced always.

    ``cluster``: cluster mode with all slots on this one node, which refuses scripts whose keys span slots.
    """

    def __init__(
        self, *, persistent: bool = False, cluster: bool = False, options: Mapping[str, str] | None = None
    ) -> None:
        self.port = _free_port()
        self.persistent, self.cluster = persistent, cluster
        self._options = dict(options or {})
        self._folder = tempfile.TemporaryDirectory(prefix="towline-redis-")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The URL of the server."""
        return f"redis://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process id, for signals."""
        assert self._process is not None, "the server is not running"
        return self._process.pid

    def start(self) -> RedisTestServer:
        """Start the process and wait until it answers."""
        options = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "dir": self._folder.name,
            "save": "",
            "appendonly": "yes" if self.persistent else "no",
            "appendfsync": "always",
            "cluster-enabled": "yes" if self.cluster else "no",
            **self._options,
        }
        arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
        log = Path(self._folder.name) / "log.txt"
        with log.open("ab") as output:
            self._process = subprocess.Popen([find_server(), *arguments], stdout=output, stderr=output)
        deadline = time.monotonic() + START_LIMIT_S
        while not self.command("PING").startswith((b"+PONG", b"-NOAUTH")):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the server did not start: {log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.01)
        if self.cluster:
            self._take_all_slots(deadline)
        return self

    def _take_all_slots(self, deadline: float) -> None:
        self.command("CLUSTER ADDSLOTSRANGE 0 16383")
        while b"cluster_state:ok" not in self.command("CLUSTER INFO"):
            if time.monotonic() > deadline:
                raise RuntimeError("the one-node cluster did not come up")
            time.sleep(0.01)

    def command(self, line: str) -> bytes:
        """Send one inline command; returns the start of the raw reply, empty when nobody answers."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=2) as link:
            link.sendall(line.encode() + b"\r\n")
            return link.recv(65536).strip()
        return b""

    def stop(self, kill: bool = False) -> None:
        """End the process, politely or by SIGKILL; its data stays in the folder. Twice without harm."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
            process.wait(timeout=START_LIMIT_S)

    def clear(self) -> None:
        """Remove the data of a stopped server."""
        for path in Path(self._folder.name).iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def __enter__(self) -> RedisTestServer:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(kill=True)
        self._folder.cleanup()


def _free_port() -> int:
    """Return a port that is free now, as is the one 10,000 above, which a cluster node also takes.

    Both lie below the ports that a system gives to outgoing connections: those come and go at any moment.
    """
    chance = random.Random(os.urandom(8))
    while True:
        port = chance.randrange(10_000, 22_000)
        with contextlib.suppress(OSError), socket.socket() as probe, socket.socket() as bus:
            probe.bind(("127.0.0.1", port))
            bus.bind(("127.0.0.1", port + 10_000))
            return port
