"""What every program of this folder uses: the graphs, and the line that ``measure.py`` reads."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from shapes import SHAPES, Graph, last_tasks

__all__ = ["TASKS", "WARM_UP_TASKS", "WORKERS", "graph_of", "last_tasks", "say"]

WORKERS = 2
"""Processes with one slot each."""
TASKS, WARM_UP_TASKS = 1000, 50


def graph_of(shape: str) -> Graph:
    """Return a graph by its name in ``shapes.py``."""
    return SHAPES[shape]()


def say(seconds: float, tasks: int) -> None:
    """Tell ``measure.py`` the result."""
    print(json.dumps({"seconds": seconds, "tasks": tasks}), flush=True)
