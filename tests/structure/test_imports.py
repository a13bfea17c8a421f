"""What the library may load, and where time and chance may enter."""

from __future__ import annotations

import ast
import json
import subprocess
import sys

import pytest

from structure.repository import LIBRARY, python_files, tree_of
from towline.testing import clause

OPTIONAL = (
    *("redis", "numpy", "starlette", "uvicorn", "websockets", "httpx", "httpx2", "obstore", "asyncpg", "textual"),
    *("opentelemetry", "distributed", "dask", "ray", "uvloop", "threadpoolctl", "psycopg", "pytest", "hypothesis"),
)
HEAVY = ("rich", "click", "ahocorasick_rs", "anyio._backends._asyncio", "multiprocessing", "tempfile", "subprocess")

LOADED = (
    "import json, sys; before = set(sys.modules); import towline; print(json.dumps(sorted(set(sys.modules) - before)))"
)


@clause("CLI-14")
def test_import_loads_nothing_optional() -> None:
    """Start-up is a measured bar, and an extra that is not installed must not be missed."""
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True, timeout=60)
    loaded = set(json.loads(done.stdout))
    tops = {name.partition(".")[0] for name in loaded}
    assert tops & {"towline"}
    assert not tops & set(OPTIONAL)
    assert not loaded & set(HEAVY)


CLOCKS = {
    "time": {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "sleep"},
    "datetime": {"now", "utcnow", "today"},
    "date": {"today"},
    "os": {"_exit", "urandom"},
    "random": {"random", "randint", "uniform", "choice", "shuffle", "randrange", "getrandbits", "SystemRandom"},
    "uuid": {"uuid1", "uuid4"},
}
ALLOWED = {
    "clock": "the room that reads them",
    "pipeline": "composition root: real chance enters a real run here",
    "access/tokens.py": "a token must not be predictable, in tests neither",
    "cli/running.py": "the last line of a real program",
    "execution/keeper.py": "a process of its own beside a body, which tests meet for real",
    "execution/child_line.py": "the child process of a body, likewise",
    "execution/trees.py": "waits for processes of the system to be gone",
    "offload/kernel_child.py": "the child process of a kernel, likewise",
    "offload/threads.py": "measures what a real kernel took",
    "offload/worker.py": "the second signal ends a real program",
    "testing/redis_server.py": "starts a real server in real time",
    "testing/virtual_loop.py": "draws a fresh seed, which it prints",
}
"""Where time and chance may be used, and why; a room or a file."""


def uses_of_time_and_chance(tree: ast.Module) -> list[tuple[int, str]]:
    """Return (line, name) of calls that read a clock, draw chance or leave the process by themselves."""
    found = []
    modules = {
        name.asname or name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names
    }
    # `random or Random()`: whoever simulates passes one.
    fallbacks = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.BoolOp | ast.IfExp)
        for part in (node.values[1:] if isinstance(node, ast.BoolOp) else [node.orelse])
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else node.value.attr
            # A parameter may be called `random`: only the module of that name is chance.
            if node.attr in CLOCKS.get(owner, ()) and (owner in modules or owner in {"datetime", "date"}):
                found.append((node.lineno, f"{owner}.{node.attr}"))
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module in CLOCKS:
            found += [
                (node.lineno, f"{node.module}.{name.name}") for name in node.names if name.name in CLOCKS[node.module]
            ]
        if isinstance(node, ast.Call) and not node.args and not node.keywords and id(node) not in fallbacks:
            function = node.func
            if getattr(function, "id", getattr(function, "attr", "")) == "Random":
                found.append((node.lineno, "Random() without a seed"))
    return found


@clause("TEST-06")
def test_time_and_chance_come_through_their_doors() -> None:
    """What reads the system's clock itself cannot be simulated."""
    found = {}
    for file in python_files(LIBRARY):
        name = file.relative_to(LIBRARY).as_posix()
        if name in ALLOWED or name.partition("/")[0] in ALLOWED:
            continue
        if uses := uses_of_time_and_chance(tree_of(file)):
            found[name] = uses
    assert not found


@pytest.mark.parametrize(
    "line",
    [
        *("import time; time.time()", "from time import monotonic", "import datetime; datetime.datetime.now()"),
        *("import random; random.random()", "import os; os._exit(1)", "from random import Random; Random()"),
    ],
)
def test_the_ban_sees_each_way(line: str) -> None:
    """A gate that sees nothing would pass for ever."""
    assert uses_of_time_and_chance(ast.parse(line))


def test_wire_takes_no_code() -> None:
    """No pickle crosses a wire, nothing that a peer sent is evaluated."""
    banned = {"pickle", "cloudpickle", "dill", "marshal", "shelve"}
    for file in python_files(LIBRARY):
        for node in ast.walk(tree_of(file)):
            if isinstance(node, ast.Import):
                assert not banned & {name.name.partition(".")[0] for name in node.names}, file
            if isinstance(node, ast.ImportFrom) and node.module:
                assert node.module.partition(".")[0] not in banned, file
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in {"eval", "exec"}, f"{file}:{node.lineno}"
