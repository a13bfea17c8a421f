"""Ctrl-C, SIGTERM and kill -9 on real runs: what ends, how fast, with which code, and what a resume finds."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from engine.programs import Program, is_alive, killed_at_the_end, wait_until
from towline.testing import clause

WITH_COMMANDS = """
@module
async def done(ctx: Context) -> int:
    with open("done.txt", "a") as log: log.write("x")
    return 1

@module
async def polite(ctx: Context, value: int = result_of(done)) -> None:
    script = "trap 'sleep 0.3; echo bye > bye.txt; exit 0' TERM; echo $$ > polite.pid; sleep 30 & wait"
    await ctx.run("sh", "-c", script)

@module(isolation="process")
def stubborn(ctx: SyncContext, value: int = result_of(done)) -> None:
    import signal
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path("stubborn.pid").write_text(str(os.getpid()))
    time.sleep(30)

@module(after=[polite, stubborn])
async def behind(ctx: Context) -> None:
    Path("behind.txt").write_text("x")

@module(always_run=True, after=[behind])
async def clean(ctx: Context) -> None:
    Path("clean.txt").write_text("x")

pipeline = Pipeline("signals", [clean], options=Options(cancel_grace_s=0.5, terminate_grace_s=0.5{options}))
"""


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path, WITH_COMMANDS.replace("{options}", ""))


def pids(program: Program) -> list[int]:
    return [int(program.path(f"{name}.pid").read_text()) for name in ("polite", "stubborn")]


def is_busy(program: Program) -> bool:
    return all(
        program.path(f"{name}.pid").exists() and program.path(f"{name}.pid").read_text()
        for name in ("polite", "stubborn")
    )


@clause("RUN-42", "RUN-48")
@clause("PLAN-49")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_first_signal_ends_the_run_in_order(number: int, code: int, program: Program) -> None:
    """Children are asked, then killed; the plan says what was interrupted; a resume goes on from there."""
    process = program.start()
    with killed_at_the_end(process):
        wait_until(lambda: is_busy(program))
        begun = time.monotonic()
        process.send_signal(number)
        output, _ = process.communicate(timeout=20)
        assert process.returncode == code, output
        assert time.monotonic() - begun < 6
        assert not any(is_alive(pid) for pid in pids(program))
        wait_until(lambda: program.path("bye.txt").exists(), timeout_s=2)
    states = program.states()
    assert states == {
        "done": "succeeded",
        "polite": "cancelled/interrupted",
        "stubborn": "cancelled/interrupted",
        "behind": "cancelled/interrupted",
        "clean": "cancelled/interrupted",
    }
    assert not program.path("clean.txt").exists()
    report = program.report()
    assert (report["status"], report["exit_code"]) == ("cancelled", code)
    program.file.write_text(program.file.read_text().replace("sleep 30", "true").replace("time.sleep(30)", "pass"))
    code, output = program.run("--resume")
    assert code == 0, output
    assert program.path("done.txt").read_text() == "x"
    assert program.path("behind.txt").exists()


@clause("RUN-42")
def test_signal_to_the_whole_group_is_one_signal(program: Program) -> None:
    """A terminal sends Ctrl-C to everybody at once."""
    process = program.start()
    with killed_at_the_end(process):
        wait_until(lambda: is_busy(program))
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=20)
        assert process.returncode == 130, output
        assert not any(is_alive(pid) for pid in pids(program))


@clause("RUN-42")
def test_always_run_tasks_may_run_on_interrupt(tmp_path: Path) -> None:
    """Who rents machines wants them given back, also after Ctrl-C."""
    program = Program(tmp_path, WITH_COMMANDS.replace("{options}", ", always_run_on_interrupt=True"))
    process = program.start()
    with killed_at_the_end(process):
        wait_until(lambda: is_busy(program))
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=20)
        assert process.returncode == 130, output
    assert program.path("clean.txt").exists()
    assert program.states()["clean"] == "succeeded"


STUCK = """
@module
def stuck(ctx: SyncContext) -> None:
    Path("in.txt").write_text("x")
    time.sleep(30)

@module(always_run=True)
async def slow_clean(ctx: Context) -> None:
    await ctx.run("sh", "-c", "echo $$ > child.pid; trap '' TERM; sleep 30")

pipeline = Pipeline("stuck", [stuck, slow_clean], options=Options(cancel_grace_s=8))
"""


@clause("RUN-43")
def test_second_signal_ends_at_once(tmp_path: Path) -> None:
    """An operator who presses twice means it; nothing survives, and the plan is readable."""
    program = Program(tmp_path, STUCK)
    process = program.start()
    with killed_at_the_end(process):
        wait_until(lambda: program.path("in.txt").exists() and program.path("child.pid").exists())
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)  # two signals of one kind that are pending together are one for the kernel
        begun = time.monotonic()
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=20)
        assert process.returncode == 130, output
        assert time.monotonic() - begun < 3
        assert not is_alive(int(program.path("child.pid").read_text()))
    assert set(program.tasks()) == {"stuck", "slow_clean"}


@clause("RUN-26")
def test_abandoned_thread_does_not_hold_the_exit(tmp_path: Path) -> None:
    """The verdict is in, so the process leaves; the interpreter would wait for other threads."""
    program = Program(
        tmp_path,
        """
@module(timeout=0.3)
def stuck(ctx: SyncContext) -> None:
    time.sleep(30)
    Path("late.txt").write_text("x")

pipeline = Pipeline("stuck", [stuck], options=Options(cancel_grace_s=0.2))
""",
    )
    begun = time.monotonic()
    code, output = program.run()
    assert code == 1, output
    assert time.monotonic() - begun < 10
    assert "abandoned" in output
    assert program.states() == {"stuck": "timed_out/timeout"}
    assert program.report()["exit_code"] == 1


@clause("RUN-28")
def test_body_that_blocks_the_loop_past_its_timeout_ends_the_process(tmp_path: Path) -> None:
    """An async body that never awaits cannot be cancelled; under main() its timeout still holds."""
    program = Program(
        tmp_path,
        """
@module
async def first(ctx: Context) -> int:
    return 1

@module(timeout=0.5)
async def blocks(ctx: Context, value: int = result_of(first)) -> None:
    time.sleep(40)

pipeline = Pipeline("blocks", [blocks], options=Options(cancel_grace_s=0.3, loop_block_warning_s=0.3))
""",
    )
    begun = time.monotonic()
    code, output = program.run()
    assert code == 1, output
    assert time.monotonic() - begun < 15
    assert program.states() == {"first": "succeeded", "blocks": "timed_out/timeout"}
    assert "blocked the event loop" in next(program.folder.glob(".towline/*/runs/*/log.txt")).read_text()


@clause("RUN-34")
def test_killed_master_takes_its_children_along(program: Program) -> None:
    """After kill -9 nothing may go on writing beside the resume; isolated bodies die within two seconds."""
    process = program.start()
    with killed_at_the_end(process):
        wait_until(lambda: is_busy(program))
        process.kill()
        process.wait(timeout=10)
        stubborn = pids(program)[1]
        wait_until(lambda: not is_alive(stubborn), timeout_s=4)
    assert program.states()["stubborn"] in ("running", "pending")


@clause("RUN-44")
def test_run_leaves_the_signals_of_the_application_alone(tmp_path: Path) -> None:
    """A library does not take Ctrl-C away from the program around it, unless it is told to."""
    program = Program(
        tmp_path,
        """
import signal

@module
async def body(ctx: Context) -> bool:
    return signal.getsignal(signal.SIGTERM) is mine

def mine(number, frame): ...

def pipeline_with(**options):
    return Pipeline("own", [body], options=Options(state="memory:", **options))

async def main():
    signal.signal(signal.SIGTERM, mine)
    found = [(await pipeline_with().run()).outcome_of(body).value]
    found.append((await pipeline_with(handle_signals=True).run()).outcome_of(body).value)
    found.append(signal.getsignal(signal.SIGTERM) is mine)
    print(found)
    try:
        await asyncio.to_thread(lambda: asyncio.run(pipeline_with(handle_signals=True).run()))
    except TowlineError as error:
        print("refused:", error)
    sys.exit(0)

asyncio.run(main())
""",
    )
    code, output = program.run()
    assert code == 0, output
    assert "[True, False, True]" in output
    assert "refused:" in output
    assert "main thread" in output


MOVE = """
KINDS = ("a", "b")

@module(each=KINDS)
def move(ctx: SyncContext, item: str) -> int:
    def key(row: int) -> int:
        return row
    count = 0
    cursor = ctx.cursor(key=key, total=60)
    for batch in cursor.batches(range(1, 61), size=3):
        with open(f"rows-{item}.txt", "a") as rows:
            rows.write("".join(f"{row}\\n" for row in batch))
        time.sleep(0.004)
        cursor.commit(batch)
        count += len(batch)
    return count

@module
def total(ctx: SyncContext, moved: list[int] = result_of(move)) -> str:
    with open("total.txt", "a") as file: file.write("x")
    return "done"

pipeline = Pipeline("move", [total])
"""


@clause("PLAN-29")
@pytest.mark.parametrize("rows", [3, 60, 110])
def test_kill_9_and_the_same_command_again(rows: int, tmp_path: Path) -> None:
    """Pull the plug, type the same line: each row arrives, at most one batch of each walk comes twice."""
    program = Program(tmp_path, MOVE)

    def written(item: str) -> list[int]:
        file = program.path(f"rows-{item}.txt")
        return [int(line) for line in file.read_text().split()] if file.exists() else []

    process = program.start()
    with killed_at_the_end(process):
        wait_until(lambda: len(written("a")) + len(written("b")) >= rows)
        process.kill()
        process.wait(timeout=10)
    code, output = program.run()
    assert code == 0, output
    for item in "ab":
        assert set(written(item)) == set(range(1, 61))
        assert len(written(item)) <= 60 + 3
    assert program.path("total.txt").read_text() == "x"
    assert {(task["done"], task["total"]) for name, task in program.tasks().items() if "[" in name} == {(60, 60)}
