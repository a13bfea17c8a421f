"""One graph on Dask's threaded scheduler, one thread per core. ``local_dask.py SHAPE``.

The graph is given as a plain dictionary, which is several times faster than the same made of ``dask.delayed``.
"""

from __future__ import annotations

import sys

import dask.threaded
from reading import Stopwatch, graph_of, last_tasks


def nothing(*_before: object) -> None:
    return None


graph = graph_of(sys.argv[1])
tasks = {f"n{number}": (nothing, *[f"n{before}" for before in waits]) for number, waits in enumerate(graph)}

watch = Stopwatch()
dask.threaded.get(tasks, [f"n{number}" for number in last_tasks(graph)])
watch.say(len(graph))
