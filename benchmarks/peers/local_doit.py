"""One graph on doit: its default runner, and its default state file in a new folder. ``local_doit.py SHAPE``."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from doit.cmd_base import ModuleTaskLoader
from doit.doit_cmd import DoitMain
from reading import Stopwatch, graph_of

graph = graph_of(sys.argv[1])


def nothing() -> None:
    return None


def task_n() -> Iterator[dict[str, Any]]:
    """Yield one task per node, as doit asks for them."""
    for number, waits in enumerate(graph):
        yield {"name": str(number), "actions": [nothing], "task_dep": [f"n:{before}" for before in waits]}


with tempfile.TemporaryDirectory() as folder:
    config = {"dep_file": os.path.join(folder, "db"), "verbosity": 0, "reporter": "zero"}
    program = DoitMain(ModuleTaskLoader({"task_n": task_n, "DOIT_CONFIG": config}))
    watch = Stopwatch()
    if program.run(["run"]):
        sys.exit("doit failed")
    watch.say(len(graph))
