"""The same graphs on other engines, when they are installed; each runs in this interpreter's environment.

pip install sf-hamilton doit      # then: python benchmarks/local.py --peers
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Row = dict[str, Any]

HAMILTON = """
import json, sys, time, types
from hamilton import base, driver
from shapes import SHAPES, last_tasks
graph = SHAPES[sys.argv[1]]()
program = types.ModuleType("generated")
lines = [f"def n{i}({', '.join(f'n{d}: int' for d in waits)}) -> int:\\n    return 0\\n" for i, waits in enumerate(graph)]
sys.modules["generated"] = program
exec("\\n".join(lines), program.__dict__)
started = time.perf_counter()
runner = driver.Builder().with_modules(program).with_adapter(base.DefaultAdapter()).build()
runner.execute([f"n{i}" for i in last_tasks(graph)])
print(json.dumps({"seconds": time.perf_counter() - started, "tasks": len(graph)}))
"""

DOIT = """
import json, os, sys, tempfile, time
from doit.cmd_base import ModuleTaskLoader
from doit.doit_cmd import DoitMain
from shapes import SHAPES
graph = SHAPES[sys.argv[1]]()
def nothing():
    return None
def task_n():
    for i, waits in enumerate(graph):
        yield {"name": str(i), "actions": [nothing], "task_dep": [f"n:{d}" for d in waits]}
config = {"dep_file": os.path.join(tempfile.mkdtemp(), "db"), "verbosity": 0, "reporter": "zero"}
program = DoitMain(ModuleTaskLoader({"task_n": task_n, "DOIT_CONFIG": config}))
started = time.perf_counter()
if program.run(["run"]):
    sys.exit("doit failed")
print(json.dumps({"seconds": time.perf_counter() - started, "tasks": len(graph)}))
"""

PEERS = {"hamilton": HAMILTON, "doit": DOIT}
SHAPES_OF_PEERS = ("wide-10000", "layered-10000", "grid-100x100")
"""Without the long chain, which several of them end in a recursion error."""


def run_peer(program: str, shape: str) -> float | None:
    """Return the seconds of one run, or None when the peer cannot do this graph."""
    here = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", program, shape], cwd=here, capture_output=True, text=True, check=False, timeout=600
    )
    return float(json.loads(done.stdout.splitlines()[-1])["seconds"]) if done.returncode == 0 else None


def peer_rows(pairs: int, probe: Callable[..., Row]) -> list[Row]:
    """Compare Towline with each peer that is installed: below 1, Towline is faster."""
    rows = []
    for peer, program in PEERS.items():
        if importlib.util.find_spec(peer) is None:
            continue
        for shape in SHAPES_OF_PEERS:
            found = []
            for _ in range(pairs):
                theirs = run_peer(program, shape)
                if theirs is not None:
                    found.append((theirs, float(probe("engine", shape)["seconds"])))
            if found:
                ratios = [ours / theirs for theirs, ours in found]
                rows.append(
                    {
                        "name": f"{shape} vs {peer}",
                        "unit": "s",
                        "beside": statistics.median(theirs for theirs, _ in found),
                        "ours": statistics.median(ours for _, ours in found),
                        "ratio": statistics.median(ratios),
                        "lowest": min(ratios),
                        "highest": max(ratios),
                        "pairs": len(found),
                        "must": 1.0,
                        "reach": 0.5,
                    }
                )
    return rows
