"""One graph on Parsl with a thread pool, one thread per core, futures as arguments. ``local_parsl.py SHAPE``."""

from __future__ import annotations

import os
import sys
import tempfile
from typing import Any

import parsl
from parsl.config import Config
from parsl.executors import ThreadPoolExecutor
from reading import Stopwatch, graph_of, last_tasks


@parsl.python_app
def nothing(*_before: object) -> None:
    return None


graph = graph_of(sys.argv[1])
with tempfile.TemporaryDirectory() as folder:
    pool = ThreadPoolExecutor(label="threads", max_threads=os.cpu_count() or 1)
    parsl.load(Config(executors=[pool], run_dir=folder, initialize_logging=False, usage_tracking=0))
    watch = Stopwatch()
    futures: list[Any] = []
    for waits in graph:
        futures.append(nothing(*[futures[before] for before in waits]))
    for number in last_tasks(graph):
        futures[number].result()
    watch.say(len(graph))
    parsl.dfk().cleanup()
