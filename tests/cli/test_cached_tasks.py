"""What the command line says of tasks that the cache may answer for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from towline.testing import clause

if TYPE_CHECKING:
    from cli.shell import Shell

CACHED = """
from towline import Pipeline, SyncContext, module, result_of

@module(cache=True)
def read(ctx: SyncContext) -> int:
    return {value}

@module
def use(ctx: SyncContext, count: int = result_of(read)) -> int:
    return count

pipeline = Pipeline("cached", [use])
"""


@clause("PLAN-11", "CACHE-06")
def test_a_plan_says_where_the_cache_will_be_asked(shell: Shell) -> None:
    """A plan that only says `run` of a task that takes an hour, or none, is no help to decide anything."""
    shell.write("cached.py", CACHED.format(value=1))

    rows = {task["id"]: task for task in shell.run("plan", "cached.py", "--json").json()["tasks"]}

    assert rows["read"]["decision"] == "run"
    assert rows["read"]["reason"]["text"] == "unless the cache has it, which is asked when its turn comes"
    assert "reason" not in rows["use"]
    assert "unless the cache has it" in shell.run("plan", "cached.py").out
    assert "the cache" not in shell.run("plan", "cached.py", "--no-cache").out


@clause("CACHE-09")
def test_why_knows_what_the_cache_missed(shell: Shell) -> None:
    """The line of the run that told it has scrolled away by the time somebody asks."""
    shell.write("cached.py", CACHED.format(value=1))
    shell.run("run", "cached.py")
    assert "not in the cache: it was never cached" in shell.run("why", "read").out
    shell.write("cached.py", CACHED.format(value=2))
    shell.run("run", "cached.py")

    assert "not in the cache: code cached.py changed" in shell.run("why", "read").out
    assert any("code cached.py changed" in one for one in shell.run("why", "read", "--json").json()["facts"])
    assert "not in the cache" not in shell.run("why", "use").out
    shell.run("run", "cached.py")
    assert "not in the cache" not in shell.run("why", "read").out
