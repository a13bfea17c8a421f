"""Streams that cannot be written: the printing ends, the run and its exit code stay."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cli.shell import TOWLINE, Shell
from towline.testing import clause

LIMIT_S = 60

FILLS = """
import sys, io, errno
from towline.cli.main import main

class FillsUp(io.TextIOBase):
    name, encoding, writes = "<stdout>", "utf-8", 0
    def write(self, text):
        self.writes += 1
        if self.writes > 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        return len(text)

sys.stdout = FillsUp()
main(["run", "small.py", *sys.argv[1:]])
"""


def in_shell(folder: Path, line: str) -> subprocess.CompletedProcess[str]:
    """Call through ``sh``, which can close streams."""
    return subprocess.run(["sh", "-c", line], cwd=folder, capture_output=True, text=True, timeout=LIMIT_S)


@clause("REP-13")
@pytest.mark.parametrize("how", ["--json", "--plain"])
def test_a_disk_that_fills_in_the_middle_ends_the_printing_alone(small: Shell, how: str) -> None:
    """The log of a CI job must not decide whether the release is made; standard error says it once."""
    small.write("fills.py", FILLS)

    ended = subprocess.run(
        [sys.executable, "fills.py", how], cwd=small.folder, capture_output=True, text=True, timeout=LIMIT_S
    )

    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.count("No space left on device") == 1
    assert "Traceback" not in ended.stderr
    assert small.report()["status"] == "succeeded"


@clause("REP-13")
@pytest.mark.parametrize("closed", ["> /dev/full", ">&-", "2> /dev/full", "2>&-", "> /dev/full 2>&1", ">&- 2>&-"])
@pytest.mark.parametrize("flags", ["", "--json"])
def test_streams_that_cannot_be_written_do_not_change_the_exit_code(small: Shell, closed: str, flags: str) -> None:
    """A daemon starts with closed streams; what it runs must not end as an internal error for that."""
    ended = in_shell(small.folder, f"{TOWLINE} run small.py {flags} {closed}")

    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr + ended.stdout
    assert small.report()["status"] == "succeeded"


@clause("REP-13")
def test_a_closed_output_does_not_become_a_file_of_the_state(small: Shell) -> None:
    """The number of a closed stream goes to the next file: a program that a body starts would print into the plan."""
    small.write(
        "prints.py",
        "from towline import Pipeline, SyncContext, module\nimport os\n\n@module\ndef shout(ctx: SyncContext) -> None:\n"
        "    os.system('echo loud')\n\npipeline = Pipeline('prints', [shout])\n",
    )

    assert in_shell(small.folder, f"{TOWLINE} run prints.py >&-").returncode == 0

    state = small.folder / ".towline"
    written = [file for file in state.rglob("*") if file.is_file()]
    assert written
    assert not [file for file in written if b"loud" in file.read_bytes()]


@clause("REP-13")
def test_the_version_can_be_asked_for_without_an_output() -> None:
    """A start-up script asks for it and throws it away."""
    ended = in_shell(Path.cwd(), f"{TOWLINE} --version >&-")

    assert (ended.returncode, ended.stderr) == (0, "")
