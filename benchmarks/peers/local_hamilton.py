"""One graph on Hamilton: a function per task in a module, the default adapter. ``local_hamilton.py SHAPE``."""

from __future__ import annotations

import sys
import types

from hamilton import base, driver, telemetry
from reading import Stopwatch, graph_of, last_tasks

graph = graph_of(sys.argv[1])
lines = [
    f"def n{number}({', '.join(f'n{before}: int' for before in waits)}) -> int:\n    return 0\n"
    for number, waits in enumerate(graph)
]
program = types.ModuleType("generated")
sys.modules["generated"] = program
exec("\n".join(lines), program.__dict__)

telemetry.disable_telemetry()
watch = Stopwatch()
runner = driver.Builder().with_modules(program).with_adapter(base.DefaultAdapter()).build()
runner.execute([f"n{number}" for number in last_tasks(graph)])
watch.say(len(graph))
