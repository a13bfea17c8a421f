"""Die at the n-th thing that a program does to its files (TEST-08).

Every write of the state room goes through one object (``towline.state.files.Files``). ``KillingFiles`` is
that object with a death at one point: before or after a create, rename, fsync, remove or folder, or inside a
write after 0, 1, half or all but one of its bytes.

    for point in KillPoints():
        root = fresh_folder()
        with point.watching():
            scenario(root, point.files)      # dies at the point, or passes untouched and ends the loop
        check_what_is_left(root)

``run_killed`` does the same to a child process with a real SIGKILL.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from towline.state.files import SystemFiles
from towline.state.locks import HELD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from towline.state.files import Buffer

POINT_LIMIT = 10_000
"""A scenario that has more points than this is refused: it would not end in a test's time."""


class Killed(BaseException):
    """The simulated kill: no ``except Exception`` holds it, as none holds SIGKILL."""


class KillingFiles(SystemFiles):
    """The file system, with a death at point number ``at`` (from 0; ``-1``: never).

    After it every call dies again: what runs in ``finally`` blocks can change nothing any more.
    ``real``: send SIGKILL to this process instead of raising ``Killed``.
    """

    def __init__(self, at: int = -1, *, real: bool = False) -> None:
        self.at, self.real = at, real
        self.passed = 0
        """How many points were reached."""
        self.dead = False
        self.names: list[str] = []
        """What was done, for messages: ``rename plan.json``."""

    def create(self, path: str) -> int:
        return self._around(f"create {os.path.basename(path)}", lambda: super(KillingFiles, self).create(path))

    def open_append(self, path: str) -> int:
        self._die_again()
        return super().open_append(path)

    def open_update(self, path: str) -> int:
        self._die_again()
        return super().open_update(path)

    def write(self, fd: int, data: Buffer) -> None:
        whole = bytes(data)
        for part in sorted({0, 1, len(whole) // 2, len(whole) - 1} & set(range(len(whole)))):
            if self._is_here(f"write, {part} of {len(whole)} bytes"):
                if part:
                    super().write(fd, whole[:part])
                self._die()
        super().write(fd, whole)
        self._point("after write")

    def fsync(self, fd: int) -> None:
        self._around("fsync", lambda: None)  # a kill loses nothing that the system has; syncing would only take time

    def truncate(self, fd: int, size_bytes: int) -> None:
        self._around("truncate", lambda: super(KillingFiles, self).truncate(fd, size_bytes))

    def rename(self, source: str, target: str) -> None:
        self._around(f"rename {os.path.basename(target)}", lambda: super(KillingFiles, self).rename(source, target))

    def remove(self, path: str) -> None:
        self._around(f"remove {os.path.basename(path)}", lambda: super(KillingFiles, self).remove(path))

    def make_folder(self, path: str) -> None:
        self._around(f"folder {os.path.basename(path)}", lambda: super(KillingFiles, self).make_folder(path))

    def sync_folder(self, path: str) -> None:
        self._around("sync folder", lambda: None)

    # ------------------------------------------------------------------ inside

    def _around(self, name: str, work: Callable[[], int | None]) -> int:
        self._point(f"before {name}")
        done = work()
        self._point(f"after {name}")
        return done or 0

    def _point(self, name: str) -> None:
        if self._is_here(name):
            self._die()

    def _is_here(self, name: str) -> bool:
        self._die_again()
        self.names.append(name)
        number, self.passed = self.passed, self.passed + 1
        return number == self.at

    def _die_again(self) -> None:
        if self.dead:
            raise Killed("after the kill")

    def _die(self) -> None:
        self.dead = True
        if self.real:
            os.kill(os.getpid(), signal.SIGKILL)
        raise Killed(self.names[-1])


class KillPoint:
    """One pass over a scenario. ``files`` goes into it; ``hit`` says afterwards whether it died."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.files = KillingFiles(number)

    @property
    def hit(self) -> bool:
        return self.files.dead

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Hold the simulated kill here, and free the locks of the dead; anything else passes."""
        try:
            yield
        except Killed:
            if not self.hit:
                raise
        finally:
            for lock in list(HELD):
                if self.hit and lock.files is self.files:
                    lock.close()

    def __str__(self) -> str:
        return f"point {self.number}: {self.files.names[-1] if self.hit else 'untouched'}"


class KillPoints:
    """A point for each n until a scenario passes untouched, which is the last one.

    Iterating raises ``RuntimeError`` for more than 10,000 points, or a scenario that touched no file at all.
    """

    def __init__(self, *, start: int = 0, step: int = 1) -> None:
        self._start, self._step = start, step

    def __iter__(self) -> Iterator[KillPoint]:
        for number in range(self._start, POINT_LIMIT, self._step):
            point = KillPoint(number)
            yield point
            if not point.hit:
                if point.files.passed == 0:
                    raise RuntimeError("the scenario made no durable write: did it get the point's files?")
                return
        raise RuntimeError(f"more than {POINT_LIMIT} kill points")


def run_killed(scenario: str, at: int, argument: str, *, timeout_s: float = 60.0) -> int:
    """Run ``module:function`` in a child process that SIGKILLs itself at point ``at``; returns its exit code.

    The function is called with ``(argument, files)``. -9 is the kill, 0 an untouched pass.
    """
    code = "from towline.testing.killpoints import _child; _child()"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.run(
        [sys.executable, "-c", code, scenario, str(at), argument], env=environment, timeout=timeout_s, check=False
    ).returncode


def _child() -> None:
    scenario, at, argument = sys.argv[1:]
    module, _, function = scenario.partition(":")
    getattr(importlib.import_module(module), function)(argument, KillingFiles(int(at), real=True))
