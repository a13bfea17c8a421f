"""The warden of a node: ends the commands that a killed node has left (CMD-06, RUN-34).

A process of its own, for nothing inside a process can act after its ``kill -9``. It is told on its stdin who
leads the session of each running command; when that pipe ends, or its parent is no longer the node, it kills
their trees and leaves. It imports next to nothing and ignores what a terminal sends.
"""

from __future__ import annotations

import os
import select
import signal
import sys

from towline.execution.trees import ProcessTree, look_up

NODE_LOOK_S = 1.0
"""How often the node itself is looked for: a process that it forked may hold the pipe open after its death."""


def main() -> None:
    """Watch the node whose pid stands on the command line."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the end of the node decides
    for pid, born in leaders_left(sys.stdin.fileno(), int(sys.argv[1])).items():
        kill_tree(pid, born)


def leaders_left(told: int, node: int) -> dict[int, str | None]:
    """Follow what the node tells until it is gone; returns who was running then, and when each was born.

    ``told``: lines ``+pid`` and ``-pid``.
    """
    leaders: dict[int, str | None] = {}
    rest = b""
    while True:
        if not select.select([told], [], [], NODE_LOOK_S)[0]:
            if os.getppid() != node:
                return leaders
            continue
        data = os.read(told, 1 << 16)
        if not data:
            return leaders
        *lines, rest = (rest + data).split(b"\n")
        _take(lines, leaders)


def _take(lines: list[bytes], leaders: dict[int, str | None]) -> None:
    begun: set[int] = set()
    for line in lines:
        pid = int(line[1:])
        if line[:1] == b"+":
            begun.add(pid)
        else:
            begun.discard(pid)
            leaders.pop(pid, None)
    for pid in begun:
        row = look_up(pid)
        leaders[pid] = row.born if row is not None else None


def kill_tree(pid: int, born: str | None) -> None:
    """Kill what a leader started, unless its pid belongs to another process by now.

    While a member of its session lives, the system gives the number to no one else: without a leader, those
    of that session are its own.
    """
    row = look_up(pid)
    if row is None or row.born == born:
        ProcessTree(pid).kill()
