"""A master and workers as processes over a server, for one measured run."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from towline.testing.redis_server import RedisTestServer

HERE = Path(__file__).resolve().parent
LIMIT_S = 120.0


class Monitor:
    """Counts the commands that clients send, as ``MONITOR`` shows them; what scripts do inside is not counted."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.sendall(b"MONITOR\r\n")
        self.kinds: dict[str, int] = {}
        self._thread = threading.Thread(target=self._count, daemon=True)
        self._thread.start()

    def _count(self) -> None:
        with self._socket.makefile("rb") as lines:
            for line in lines:
                if b"[" in line and b" lua]" not in line:
                    command = line.split(b"]", 1)[1].split(b'"')[1].decode().upper()
                    self.kinds[command] = self.kinds.get(command, 0) + 1

    def stop(self) -> int:
        """Return how many commands were seen."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()
        return sum(self.kinds.values())


class Run:
    """The processes of one run of a shape."""

    def __init__(self, server: RedisTestServer, shape: str, *, workers: int = 2, slots: int = 1, **more: Any) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="towline-bench-")
        self.marks = Path(self._folder.name) / "marks.txt"
        self._given = {
            "shape": shape,
            "coordinator": server.url,
            "state": str(Path(self._folder.name) / "state"),
            "workers": workers,
            "slots": slots,
            **more,
        }
        self._environ = {
            **os.environ,
            "TOWLINE_TEST_SHAPE": shape,
            "TOWLINE_TEST_MARKS": str(self.marks),
            "PYTHONPATH": str(HERE.parents[1] / "src"),
        }
        server.command("FLUSHALL")
        self._workers = [self._start("worker", worker_id=f"w-{number}") for number in range(workers)]
        self._master = self._start("master")

    def _start(self, role: str, **more: Any) -> subprocess.Popen[str]:
        command = [sys.executable, str(HERE / "node.py"), role, json.dumps({**self._given, **more})]
        return subprocess.Popen(command, env=self._environ, stdout=subprocess.PIPE, text=True, cwd=self._folder.name)

    def result(self) -> dict[str, Any]:
        """Wait for the end; returns the master's figures."""
        try:
            out, _ = self._master.communicate(timeout=LIMIT_S)
            figures: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
            assert figures["status"] == "succeeded", figures
            return figures
        finally:
            self.close()

    def lines(self, count: int) -> list[tuple[float, int]]:
        """Wait until bodies have left so many lines: (monotonic second, process)."""
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            text = self.marks.read_text("utf-8") if self.marks.exists() else ""
            found = [line.split() for line in text.splitlines()]
            if len(found) >= count and text.endswith("\n"):
                return [(float(at), int(process)) for at, process in found]
            time.sleep(0.002)
        raise TimeoutError(f"fewer than {count} lines after {LIMIT_S:g} s")

    def close(self) -> None:
        """Leave no process behind."""
        for process in (*self._workers, self._master):
            if process.poll() is None:
                try:
                    process.wait(timeout=5)
                except subprocess.TimeoutExpired:
                    process.send_signal(signal.SIGCONT)
                    process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        self._folder.cleanup()
