"""Commands for real: child programs that fork, ignore SIGTERM, flood and hold pipes (Linux)."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from towline.errors.commands import CommandFailedError, CommandNotFoundError, CommandTimeoutError
from towline.execution import started, trees
from towline.execution.commands import run_command
from towline.execution.started import wait_for_trees
from towline.modules.commands import CommandResult
from towline.testing import clause

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(sys.platform == "win32", reason="POSIX programs")]

WAIT_S = 20.0
"""For what must come, and for what must not have waited for something that takes much longer, on a busy machine."""


class Runs:
    """Runs commands in a folder and keeps their lines."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lines: list[tuple[str, str]] = []

    async def __call__(self, *argv: Any, **options: Any) -> CommandResult[Any]:
        options.setdefault("mask", lambda text: text.replace("hunter2", "***"))
        return await run_command(argv, workdir=self.folder, on_line=lambda *line: self.lines.append(line), **options)

    async def python(self, program: str, *arguments: str, **options: Any) -> CommandResult[Any]:
        return await self(sys.executable, "-c", program, *arguments, **options)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Runs]:
    yield Runs(tmp_path)
    started.warden.close()  # as the end of a run does


def read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


async def wait_for_file(path: Path) -> str:
    for _ in range(int(WAIT_S / 0.01)):
        if (text := read(path)).endswith("\n"):
            return text
        await asyncio.sleep(0.01)
    raise AssertionError(f"{path} did not come")


def is_alive(pid: int) -> bool:
    return any(row.pid == pid for row in trees.process_table())


async def wait_until_dead(*pids: int) -> None:
    for _ in range(int(WAIT_S / 0.01)):
        if not any(is_alive(pid) for pid in pids):
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"alive: {[pid for pid in pids if is_alive(pid)]}")


@clause("CMD-01")
async def test_a_command_gets_its_input_and_gives_its_streams(run: Runs) -> None:
    """No shell, empty stdin unless input is given."""
    result = await run("sh", "-c", 'cat; echo "$1" >&2', "sh", "a  b; *", input="text")
    assert (result.stdout, result.stderr, result.returncode) == ("text", "a  b; *\n", 0)

    assert (await run("cat")).stdout == ""
    assert (await run("cat", input=b"\xff", encoding=None)).stdout == b"\xff"


@clause("CMD-03", "CMD-10")
async def test_a_bad_code_raises_with_masked_words_and_the_raw_result(run: Runs) -> None:
    """Who reads the error must find the reason in it, and no secret."""
    with pytest.raises(CommandFailedError) as failed:
        await run("sh", "-c", "echo out; for i in $(seq 50); do echo line $i hunter2 >&2; done; exit 3", "hunter2")

    error = failed.value
    assert error.returncode == 3
    assert error.argv[-1] == "***"
    assert error.tail.splitlines() == [f"line {n} ***" for n in range(11, 51)]
    assert "hunter2" not in str(error)
    assert error.result is not None
    assert "hunter2" in error.result.stderr
    assert ("stderr", "line 1 ***") in run.lines
    assert (await run("sh", "-c", "exit 3", ok_codes=(0, 3))).returncode == 3
    assert (await run("sh", "-c", "exit 3", check=False)).returncode == 3


@clause("CMD-03")
async def test_a_signal_is_named(run: Runs) -> None:
    """``-11`` tells nobody anything."""
    with pytest.raises(CommandFailedError, match="SIGKILL"):
        await run("sh", "-c", "kill -9 $$")


@clause("CMD-04")
async def test_what_is_missing_is_named(run: Runs) -> None:
    """A missing folder is not a missing program."""
    with pytest.raises(CommandNotFoundError, match="searched PATH: /nowhere:/else"):
        await run("no-such-program", env={"PATH": "/nowhere:/else"}, environ={})
    with pytest.raises(CommandNotFoundError, match="there is no such folder"):
        await run("ls", cwd="missing")
    (run.folder / "plain").write_text("x")
    with pytest.raises(CommandNotFoundError, match="may execute"):
        await run("./plain")
    script = run.folder / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    with pytest.raises(CommandNotFoundError, match="first line"):
        await run("./script")


@clause("CMD-03", "CMD-06")
async def test_a_timeout_ends_the_whole_tree(run: Runs) -> None:
    """Also a child that ignores SIGTERM and one that left the session."""
    program = """
import os, signal, subprocess, sys, time
stubborn = subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); print('x', flush=True); time.sleep(99)"], stdout=subprocess.PIPE)
stubborn.stdout.read(1)
apart = subprocess.Popen(["sleep", "99"], start_new_session=True)
print("before", flush=True)
with open("pids", "w") as file: print(os.getpid(), stubborn.pid, apart.pid, file=file)
time.sleep(99)
"""
    begun = time.monotonic()
    with pytest.raises(CommandTimeoutError) as ended:
        await run.python(program, timeout=3.0, grace=60)
    took_s = time.monotonic() - begun

    pids = [int(pid) for pid in (run.folder / "pids").read_text().split()]
    assert not any(is_alive(pid) for pid in pids)
    assert ended.value.result is not None
    assert ended.value.result.timed_out
    assert ended.value.result.stdout == "before\n"
    assert took_s < WAIT_S, "the root dies of SIGTERM, its rest 0.2 s later and not after the grace"


@clause("CMD-06")
async def test_a_command_that_ignores_sigterm_is_killed_after_its_grace(run: Runs) -> None:
    """Grace is a wait, not a hope."""
    with pytest.raises(CommandTimeoutError):
        await run("sh", "-c", "trap '' TERM; echo $$ > pid; while true; do sleep 0.1; done", timeout=2.0, grace=0.3)

    await wait_until_dead(int((run.folder / "pid").read_text()))


@clause("CMD-06", "RUN-48")
async def test_a_cancel_returns_within_the_grace_of_the_task_and_the_tree_ends_behind_it(run: Runs) -> None:
    """The body must see its cancellation soon; the command may take its own grace."""
    begun = asyncio.create_task(
        run("sh", "-c", "trap '' TERM; echo $$ > pid; while true; do sleep 0.1; done", grace=30)
    )
    pid = int(await wait_for_file(run.folder / "pid"))

    begun.cancel()
    at = time.monotonic()
    with pytest.raises(asyncio.CancelledError):
        await begun
    assert time.monotonic() - at < WAIT_S, "the grace of the command is the tree's affair"
    assert is_alive(pid)
    await wait_for_trees(0.1)
    assert not is_alive(pid)


@clause("CMD-06", "RUN-43")
async def test_all_trees_can_be_killed_at_once(run: Runs) -> None:
    """The last act of a node that leaves."""
    begun = asyncio.create_task(run("sh", "-c", "trap '' TERM; echo $$ > pid; while true; do sleep 0.1; done"))
    pid = int(await wait_for_file(run.folder / "pid"))

    started.kill_all()

    with pytest.raises(CommandFailedError, match="SIGKILL"):
        await begun
    await wait_until_dead(pid)


@clause("CMD-08")
async def test_a_flood_is_read_to_its_end_and_kept_up_to_the_cap(run: Runs) -> None:
    """A child must never block on a reader that has enough."""
    result = await run("sh", "-c", "printf begin; head -c 30000000 /dev/zero | tr '\\0' x; printf end")

    assert result.stdout.startswith("beginx")
    assert result.stdout.endswith("xend")
    assert len(result.stdout) < 1.1 * 1024 * 1024
    assert result.stdout_truncated
    assert not result.stderr_truncated


@clause("CMD-09")
async def test_a_pipe_held_by_a_descendant_is_left_after_two_seconds(run: Runs) -> None:
    """A daemon that a command starts must not hold its task."""
    begun = time.monotonic()
    result = await run("sh", "-c", "sleep 300 & echo $! > pid; echo done")

    assert result.stdout == "done\n"
    assert 1.9 < time.monotonic() - begun < WAIT_S
    assert run.lines[-1][0] == "command"
    assert "still holds its output" in run.lines[-1][1]
    os.kill(int((run.folder / "pid").read_text()), signal.SIGKILL)


@clause("CMD-11")
async def test_bytes_that_are_no_text_are_shown_escaped(run: Runs) -> None:
    """Output of old tools must not break the body that reads it."""
    result = await run("printf", r"caf\351\n")

    assert result.stdout == "caf\\xe9\n"
    assert (await run("printf", r"caf\351", encoding="latin-1")).stdout == "café"


@clause("CMD-13")
async def test_a_replacement_may_answer_and_dry_runs_nothing(run: Runs) -> None:
    """Tests and rehearsals of pipelines without their effects."""

    def answer(argv: tuple[str, ...], cwd: str, env_names: tuple[str, ...]) -> CommandResult[str] | None:
        if argv[0] != "git":
            return None
        assert env_names == ("A",)
        return CommandResult(argv=argv, returncode=1, stdout="made up", stderr="")

    with pytest.raises(CommandFailedError, match="code 1"):
        await run("git", "status", env={"A": "1"}, replacement=answer)
    assert (await run("echo", "real", replacement=answer)).stdout == "real\n"

    dry = await run("rm", "-rf", "hunter2", dry=True)
    assert (dry.returncode, dry.stdout, dry.dry) == (0, "", True)
    assert run.lines[-1] == ("command", "not run (dry): rm -rf ***")


async def test_a_program_that_reads_less_than_its_input_simply_ends(run: Runs) -> None:
    """``head`` closes its stdin early; that is no error."""
    result = await run("head", "-c", "3", input="x" * 1_000_000)

    assert result.stdout == "xxx"


async def test_output_without_capture_is_logged_and_not_kept(run: Runs) -> None:
    """For commands whose output is long and only for people."""
    result = await run("echo", "seen", capture=False)

    assert (result.stdout, run.lines) == ("", [("stdout", "seen")])


@clause("CMD-06")
async def test_a_cancel_while_the_program_is_being_started_leaves_nothing(run: Runs) -> None:
    """The interleaving that lost a tree: the program runs, and its transport is not there yet."""
    for turns in range(6):
        marker = f"30.{turns}{os.getpid()}"
        begun = asyncio.create_task(run("sh", "-c", f"sleep {marker} & wait"))
        for _ in range(turns):
            await asyncio.sleep(0)
        begun.cancel()
        await asyncio.wait((begun,))
        await wait_for_trees()
        assert not pids_with(marker)


@clause("RUN-43")
async def test_a_program_that_is_just_being_started_is_killed_with_the_others(run: Runs) -> None:
    """The interleaving that left an orphan: it runs, and the turn that would count it has not come."""
    for turns in range(8):
        marker = f"31.{turns}{os.getpid()}"
        begun = asyncio.create_task(run("sh", "-c", f"sleep {marker}; true"))
        for _ in range(turns):
            await asyncio.sleep(0)
        has_begun = bool(pids_with(marker))

        started.kill_all()

        if has_begun:
            await wait_until_dead(*pids_with(marker))
        begun.cancel()
        await asyncio.wait((begun,))
        await wait_for_trees()


def pids_with(marker: str) -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and marker in command_line(name)]


def command_line(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
