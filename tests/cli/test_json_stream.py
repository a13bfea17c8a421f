"""``--json``: standard output is for the program that reads it, whatever else writes there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from towline.testing import clause

if TYPE_CHECKING:
    from cli.shell import Shell

LOUD = """
import os, subprocess, sys
from towline import Options, Pipeline, SyncContext, module

print("at import")

@module
def loud(ctx: SyncContext) -> None:
    os.system("echo by a shell")
    subprocess.run(["echo", "by a child"])
    os.write(1, b"by descriptor\\n")
    print("by print")
    sys.__stdout__.write("by the first stdout\\n")

pipeline = Pipeline("loud", [loud], options=Options(capture=os.environ.get("CAPTURE", "auto")))

if __name__ == "__main__":
    pipeline.main()
"""


@clause("CTL-25", "REP-09")
@pytest.mark.parametrize("capture", ["auto", "off"])
@pytest.mark.parametrize("call", [["run", "loud.py"], ["loud.py", "run"], ["run", "loud.py", "--workers", "1"]])
def test_nothing_but_events_comes_on_standard_output(shell: Shell, call: list[str], capture: str) -> None:
    """One bare line among the events breaks the reader in the middle of the night."""
    shell.write("loud.py", LOUD)

    ended = shell.run(*call, "--json", CAPTURE=capture)

    own = call[0].endswith(".py")  # what a file prints before it comes to main() is nobody's to catch
    lines = [line for line in ended.out.splitlines() if not (own and line == "at import")]
    kinds = [json.loads(line)["kind"] for line in lines]
    assert kinds[-1] == "run_ended"
    if "--workers" not in call:  # whose own descriptors lead nowhere
        for said in ("by a shell", "by a child", "by descriptor"):
            assert said in ended.err


@clause("CLI-12")
@pytest.mark.parametrize(
    "call", [["plan", "loud.py", "--json"], ["plan", "loud.py", "--format", "json"], ["check", "loud.py", "--json"]]
)
def test_what_a_program_prints_at_import_is_no_result(shell: Shell, call: list[str]) -> None:
    """A banner in a file that is imported must not cost its user every use of ``--json``."""
    shell.write("loud.py", LOUD)
    ended = shell.run(*call)
    assert isinstance(ended.json(), dict)
    assert "at import" in ended.err


@clause("REP-13")
def test_a_reader_that_leaves_ends_the_printing_not_the_run(shell: Shell) -> None:
    """`| head -1` closes the pipe; the run goes on to its end."""
    shell.write("loud.py", LOUD)
    process = shell.start("run", "loud.py", "--json")
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
