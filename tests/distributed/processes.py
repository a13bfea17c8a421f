"""The worker processes of a master, by the system's process table."""

from __future__ import annotations

import time
from pathlib import Path

GONE_WITHIN_S = 5.0


def workers_of(master: int) -> list[int]:
    """The worker processes of a master, by the process table."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            line = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if parent == master and b"embedded_child" in line:
            found.append(int(folder.name))
    return found


def wait_until_gone(*pids: int) -> None:
    """Wait for processes to be gone, zombies counting as gone."""
    deadline = time.monotonic() + GONE_WITHIN_S
    while True:
        left = []
        for pid in pids:
            try:
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if state not in ("Z", "X"):
                left.append(pid)
        if not left:
            return
        assert time.monotonic() < deadline, f"{left} live on"
        time.sleep(0.02)
