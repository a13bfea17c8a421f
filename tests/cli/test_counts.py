"""How many tasks there were: one rule in every place that counts (PLAN-62)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from towline.testing import clause

if TYPE_CHECKING:
    from cli.shell import Shell

EACH = """
from towline import Pipeline, SyncContext, module, result_of

@module{version}
def numbers(ctx: SyncContext) -> dict[str, int]:
    {source}

@module(each=result_of(numbers))
def square(ctx: SyncContext, item: int) -> int:
    if item == 2:
        raise ValueError("no square")
    return item * item

@module
def total(ctx: SyncContext, squares: list[int] = result_of(square)) -> int:
    return sum(squares)

pipeline = Pipeline("each", [total])
"""

CASES = {
    "raise ValueError('no numbers')": {"failed": 1, "skipped": 2},
    "return {'x' * 200: 1}": {"succeeded": 1, "failed": 1, "skipped": 1},
    "return {str(one): one for one in range(4)}": {"succeeded": 3, "failed": 1, "cancelled": 1, "skipped": 1},
}


@clause("PLAN-62")
@pytest.mark.parametrize("source", CASES)
def test_all_counts_agree(shell: Shell, source: str) -> None:
    """Who reads nine in one line and ten in the next trusts neither."""
    shell.write("each.py", EACH.format(version="", source=source))
    ended = shell.run("run", "each.py", "--parallel", "1", "--plain", code=1)
    expected = CASES[source]
    words = ", ".join(
        f"{expected[state]} {state}" for state in ("succeeded", "failed", "skipped", "cancelled") if state in expected
    )
    assert f": {words}\n" in ended.out
    assert shell.report()["counts"] == expected
    [others] = re.findall(r"(\d+) more tasks? did not run", ended.out)
    assert int(others) == expected["skipped"] + expected.get("cancelled", 0)
    assert words in shell.run("runs").out
    assert "attempt 0" not in ended.out
    for report in shell.folder.glob(".towline/each/runs/*/report.json"):
        report.unlink()
    assert words in shell.run("runs").out, "from the plan, when there is no report"
    tasks = shell.run("show", "latest", "--json").json()["tasks"]
    assert len(tasks) == sum(expected.values())


@clause("PLAN-58")
def test_the_advice_of_a_failed_expansion_helps(shell: Shell) -> None:
    """A source that succeeded is kept with its value: to repair it alone and resume would fail the same way again."""
    shell.write("each.py", EACH.format(version="", source="return {'x' * 200: 1}"))
    failed = shell.run("run", "each.py", "--plain", code=1)
    assert "give it another version= and go on with --resume" in failed.out

    shell.write("each.py", EACH.format(version="(version='2')", source="return {'one': 1}"))
    assert shell.run("run", "each.py", "--plain", "--resume").out.count("3 succeeded") >= 1
