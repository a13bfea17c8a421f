"""Workers as processes of their own, started by the command that users start them with."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
KERNELS = str(HERE / "offload_kernels.py")


def environment(**more: str) -> dict[str, str]:
    path = os.pathsep.join([str(HERE.parents[1] / "src"), str(HERE)])
    return {**os.environ, "PYTHONPATH": path, **more}


def start(
    endpoint: str, name: str, *flags: str, module: str = KERNELS, prefix: tuple[str, ...] = (), **variables: str
) -> subprocess.Popen[str]:
    """Start ``towline offload worker``; ``prefix`` is what starts it, ``ip netns exec`` for one."""
    command = [
        *prefix,
        sys.executable,
        "-m",
        "towline.offload.worker",
        module,
        "--master",
        endpoint,
        "--name",
        name,
        *flags,
    ]
    return subprocess.Popen(
        command, env=environment(**variables), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@contextmanager
def workers(endpoint: str, count: int, *flags: str, module: str = KERNELS) -> Iterator[list[subprocess.Popen[str]]]:
    """Have so many workers, and none afterwards."""
    started = [start(endpoint, f"w{number}", *flags, module=module) for number in range(count)]
    everyone = list(started)
    try:
        yield started
    finally:
        for process in {*everyone, *started}:
            process.kill()
            process.communicate(timeout=20)
