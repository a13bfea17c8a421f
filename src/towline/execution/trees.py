"""A process with everything that it started, and how such a tree is brought to its end (RUN-33, CMD-06)."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

LEFTOVERS_AFTER_S: Final = 0.2
"""How long the rest of a tree may live on once its root is dead (RUN-33)."""

POLL_S: Final = 0.02
_SWEEPS: Final = 5


class Process(NamedTuple):
    """One line of the process table. ``born``: what tells two processes of one pid apart."""

    pid: int
    parent: int
    session: int
    born: str


def members(root: int, table: Iterable[Process], known: Iterable[int] = ()) -> list[Process]:
    """Pick a tree out of the process table: the session of its root, and the descendants of all of these.

    ``known`` are members from earlier looks; their children belong to the tree even after the root has died.
    Descendants that left the session and lost all their ancestors in between cannot be found.
    """
    rows = list(table)
    children: dict[int, list[Process]] = {}
    for row in rows:
        children.setdefault(row.parent, []).append(row)
    starts = {root, *known}
    found = {row.pid: row for row in rows if row.pid in starts or row.session == root}
    queue = list(found)
    for pid in queue:
        for child in children.get(pid, ()):
            if child.pid not in found:
                found[child.pid] = child
                queue.append(child.pid)
    return list(found.values())


def linux_table(folder: str = "/proc") -> list[Process]:
    """Read the process table of Linux; processes that end meanwhile and zombies are left out."""
    rows: list[Process] = []
    for name in os.listdir(folder):
        if not name.isdigit():
            continue
        try:
            with open(f"{folder}/{name}/stat", encoding="utf-8", errors="replace") as file:
                row = parse_stat(file.read())
        except OSError:  # it ended between the two looks
            continue
        if row is not None:
            rows.append(row)
    return rows


def parse_stat(text: str) -> Process | None:
    """Parse one ``/proc/<pid>/stat``; ``None`` for a zombie. The program's name may hold blanks and brackets."""
    head, _, tail = text.rpartition(")")
    fields = tail.split()
    if fields[0] in ("Z", "X"):
        return None
    return Process(int(head.split(" ", 1)[0]), int(fields[1]), int(fields[3]), fields[19])


def look_up(pid: int) -> Process | None:
    """Find one process; ``None`` if it is no more."""
    if sys.platform != "linux":
        return next((row for row in process_table() if row.pid == pid), None)
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return parse_stat(file.read())
    except OSError:
        return None


def ps_table() -> list[Process]:
    """Read the process table of other POSIX systems; the process group stands in for the session."""
    import subprocess

    text = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,pgid=,stat=,lstart="], capture_output=True, text=True, timeout=5, check=False
    ).stdout
    return parse_ps(text)


def parse_ps(text: str) -> list[Process]:
    """Parse the output of ``ps -A -o pid=,ppid=,pgid=,stat=,lstart=``; zombies are left out."""
    rows: list[Process] = []
    for line in text.splitlines():
        pid, parent, group, state, born = line.split(None, 4)
        if not state.startswith("Z"):
            rows.append(Process(int(pid), int(parent), int(group), born))
    return rows


def process_table() -> list[Process]:
    """Read the process table of this system; empty on Windows, where trees are ended by ``taskkill``."""
    if sys.platform == "linux":
        return linux_table()
    return [] if sys.platform == "win32" else ps_table()


class ProcessTree:
    """A root process that leads its own session, with all that is found below it.

    Looking before signalling remembers members that later lose their ancestors.
    """

    def __init__(self, root: int, table: Callable[[], list[Process]] = process_table) -> None:
        self.root = root
        self._table = table
        self._known: dict[int, str] = {}

    def look(self) -> list[Process]:
        """Return the members that live now."""
        table = self._table()
        born = {row.pid: row.born for row in table}
        self._known = {pid: stamp for pid, stamp in self._known.items() if born.get(pid) == stamp}
        found = members(self.root, table, self._known)
        self._known.update((row.pid, row.born) for row in found)
        return found

    def send(self, signal_number: int) -> list[Process]:
        """Signal every member that is found; returns them."""
        if sys.platform == "win32":
            return self._taskkill(force=signal_number != signal.SIGTERM)
        found = self.look()
        for row in found:
            try:
                os.kill(row.pid, signal_number)
            except (ProcessLookupError, PermissionError):  # ended meanwhile, or became another user's
                continue
        return found

    def kill(self) -> None:
        """Send SIGKILL until nothing is found any more: a member may fork while it is being looked at.

        Blocks for some milliseconds; the members are dead or dying when it returns.
        """
        if sys.platform == "win32":
            self._taskkill(force=True)
            return
        for _ in range(_SWEEPS):
            if not self.send(signal.SIGKILL):
                return
            time.sleep(0.001)

    def _taskkill(self, *, force: bool) -> list[Process]:
        import subprocess

        flags = ["/F"] if force else []
        subprocess.run(["taskkill", *flags, "/T", "/PID", str(self.root)], capture_output=True, timeout=5, check=False)
        return []
