"""Bodies that ignore their end: the run still ends, and so does the process that it ran in."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from engine.programs import Program, killed_at_the_end, wait_until
from towline.testing import clause

SWALLOWS = """
async def ignore_all():
    while True:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            pass

@module{settings}
async def hang(ctx: Context) -> None:
    Path("begun.txt").write_text("x")
    {body}

pipeline = Pipeline("hangs", [hang], options=Options(cancel_grace_s=0.2, raise_on_failure=False))
"""
ITSELF = "await ignore_all()"
IN_A_GROUP = "async with asyncio.TaskGroup() as group: group.create_task(ignore_all())"
LEFT_BEHIND = "asyncio.get_running_loop().kept = asyncio.create_task(ignore_all()); await asyncio.sleep(0)"


def program(folder: Path, body: str, settings: str = "", tail: str = "") -> Program:
    return Program(folder, SWALLOWS.replace("{settings}", settings).replace("{body}", body) + tail)


@clause("RUN-26", "RUN-48")
@pytest.mark.parametrize("by", ["main", "towline"])
@pytest.mark.parametrize("body", [ITSELF, IN_A_GROUP])
def test_a_body_that_swallows_its_cancel_does_not_keep_the_process(tmp_path: Path, body: str, by: str) -> None:
    """CI that has to be killed after an hour shows no report; Ctrl-C that does nothing is a lost terminal."""
    one = program(tmp_path, body)
    process = one.start(by=by)
    with killed_at_the_end(process):
        wait_until(lambda: one.path("begun.txt").exists())
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=20)
    assert process.returncode == 130, output
    assert one.states() == {"hang": "cancelled/interrupted"}
    assert "destroyed" not in output
    assert "Traceback" not in output
    assert one.report()["exit_code"] == 130


@clause("RUN-26")
@pytest.mark.parametrize("call", ["pipeline.run_sync()", "asyncio.run(pipeline.run())"])
def test_user_code_gets_its_report_though_a_body_would_not_end(tmp_path: Path, call: str) -> None:
    """A script that runs a pipeline goes on after it: neither our loop nor its own waits for the body."""
    tail = f"\nreport = {call}\nprint('back with', report.status, report.tasks[0].abandoned)\nraise SystemExit(7)\n"
    begun = time.monotonic()

    code, output = program(tmp_path, ITSELF, "(timeout=0.2)", tail).run(timeout_s=30)

    assert code == 7, output
    assert "back with failed True" in output
    assert "destroyed" not in output
    assert "Traceback" not in output
    assert time.monotonic() - begun < 20


@clause("RUN-48")
def test_a_task_that_a_body_left_behind_does_not_keep_the_process(tmp_path: Path) -> None:
    """The module succeeded; what it forgot to stop ends with the loop."""
    code, output = program(tmp_path, LEFT_BEHIND).run(timeout_s=30)

    assert code == 0, output
