"""What every program of this folder uses: the graphs, and the line that ``measure.py`` reads."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from shapes import SHAPES, Graph, last_tasks

__all__ = ["TASKS", "WARM_UP_TASKS", "WORKERS", "Stopwatch", "graph_of", "last_tasks", "say"]

WORKERS = 2
"""Processes with one slot each."""
TASKS, WARM_UP_TASKS = 1000, 50


def graph_of(shape: str) -> Graph:
    """Return a graph by its name in ``shapes.py``."""
    return SHAPES[shape]()


class Stopwatch:
    """Measures from its making: elapsed time, and the processor time of this process."""

    def __init__(self) -> None:
        self._started, self._cpu_started = time.perf_counter(), time.process_time()

    def say(self, tasks: int) -> None:
        """Tell ``measure.py`` both, of so many tasks."""
        say(time.perf_counter() - self._started, tasks, cpu_seconds=time.process_time() - self._cpu_started)


def say(seconds: float, tasks: int, **more: float) -> None:
    """Tell ``measure.py`` the result."""
    print(json.dumps({"seconds": seconds, "tasks": tasks, **more}), flush=True)
