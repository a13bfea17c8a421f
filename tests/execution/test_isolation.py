"""Bodies in processes of their own, for real: what they can do, how they end, and that nothing outlives them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import isolated_program
import pytest

import towline
from towline import Options, Secret
from towline.errors.running import ModuleTimeoutError, ProcessDiedError
from towline.errors.values import RemoteModuleError
from towline.execution import trees
from towline.execution.isolation_calls import BodyCalls
from towline.execution.isolation_messages import raw
from towline.execution.run_request import RunRequest
from towline.modules.doors import Attempt
from towline.planning.records import PlannedTask
from towline.state.memory import MemoryStore
from towline.testing import clause

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX processes")

WAIT_S = 20.0
"""For what must come, and for what must take no longer than a wait that it shall not have waited for, on a busy machine."""


class Run:
    """One run of some modules of the isolated program, and what it left."""

    def __init__(self, folder: Path, *modules: str, params: Any = None, **options: Any) -> None:
        begun = time.monotonic()
        options = {"state": str(folder / "state"), "terminate_grace_s": 0.5, **options}
        request = RunRequest(modules=modules, params=params, workdir=folder, options=Options(**options))
        self.report, self.cause = asyncio.run(isolated_program.pipeline.run_for(request))
        self.took_s = time.monotonic() - begun
        self.folder = folder

    def value(self, module: Any) -> Any:
        return self.report.outcome_of(module).value

    def log(self, task: str) -> str:
        return next(self.folder.rglob(f"log/{task}.txt")).read_text()

    def events(self, kind: str) -> list[dict[str, Any]]:
        lines = next(self.folder.rglob("events.jsonl")).read_text().splitlines()
        return [event["data"] for line in lines if (event := json.loads(line)).get("kind") == kind]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOWLINE_TEST_PIDS", str(tmp_path / "pids"))
    monkeypatch.setenv("TOWLINE_TEST_VALUE", "hunter22")
    return tmp_path


def pids_of(folder: Path) -> list[int]:
    return [int(pid) for pid in (folder / "pids").read_text().split()]


def living(pids: list[int]) -> list[int]:
    return [row.pid for row in trees.process_table() if row.pid in pids]


@clause("RUN-30")
def test_a_body_gets_its_inputs_in_a_fresh_process_of_its_own_session(folder: Path) -> None:
    """Values, lists of an expanded module and whole outcomes arrive as they would in a thread."""
    run = Run(folder, "facts")

    value = run.value(isolated_program.facts)
    assert value["inputs"] == "[1, 2, 3] ['a', 'b'] [1, 2, 3] numbers"
    assert int(value["pid"]) != os.getpid()
    assert int(value["session"]) != os.getsid(0)
    assert value["stdin"] == ""
    assert (value["task"], value["workdir"]) == ("facts", str(folder))
    assert value["loaded"] == "set()", "asyncio would double the time to start, and nothing is planned here"
    assert value["collects"] == "True"


@clause("MOD-16")
def test_a_selector_over_an_each_module_gives_all_its_children(folder: Path) -> None:
    """One module of a tag may have been expanded; an isolated body gets the same list as any other."""
    value = Run(folder, "of_selector").value(isolated_program.of_selector)

    assert value == "['X', 'Y', 7] ['letters[x]', 'letters[y]', 'number']"


@clause("MOD-23", "SEC-07")
def test_a_secret_parameter_reaches_the_process_and_nothing_else(folder: Path) -> None:
    """The value goes over the private line alone: no plan, log or report holds it."""
    params = isolated_program.Params(token=Secret("hunter2hunter2"), count=3)
    run = Run(folder, "with_secret_params", params=params)

    assert run.cause is None, run.cause
    assert run.value(isolated_program.with_secret_params) == "*** 14 None 3"
    assert "the token is ***" in run.log("with_secret_params")
    for file in folder.rglob("*"):
        assert file.is_dir() or b"hunter2hunter2" not in file.read_bytes(), file


@clause("RUN-30")
def test_an_async_body_runs_on_a_loop_of_its_own(folder: Path) -> None:
    """The same context, awaiting."""
    assert Run(folder, "on_loop").value(isolated_program.on_loop) == "1 2 3 6"


@clause("RUN-32", "RUN-36", "SEC-07")
def test_every_door_is_the_nodes(folder: Path) -> None:
    """Commands, steps, cursors, artifacts, findings and secrets; all output is captured and masked."""
    run = Run(folder, "doors")

    assert run.cause is None, run.cause
    value = run.value(isolated_program.doors)
    assert value["ran"] == "4 out err"
    assert value["failed"] == "5 why"
    assert value["step"] == "4"
    assert value["cursor"] == "4"
    log = run.log("doors")
    for line in ("info a record", "stdout printed ***", "stdout raw ***", "stdout from C ***", "stdout out"):
        assert line in log
    assert "hunter22" not in log
    assert run.events("artifact")[0]["digest"] == value["artifact"]
    assert run.events("finding")[0]["code"] == "CODE"
    assert run.events("progress")[-1]["total"] is None or run.events("progress")[-1]["done"] in (1, 5)
    cursor = json.loads(next(folder.rglob("cursors/doors.json")).read_text())
    assert (cursor["key"], cursor["totals"]["done"]) == (4, 5)


@clause("RUN-32")
def test_a_process_reaches_only_the_state_of_its_own_task_under_its_own_epoch() -> None:
    """A body that outlives its claim, or lies, can write nothing that counts."""

    async def main() -> None:
        store = MemoryStore()
        row = PlannedTask(id="mine", module="mine")
        attempt = Attempt(task_id="mine", module="mine", run_id="r", worker_id="w", workdir=Path(), epoch=2)
        run: Any = SimpleNamespace(row=row, attempt=attempt)
        nothing: Any = None
        calls = BodyCalls(run, nothing, nothing, store, "00000001-00000000", lambda *_: None)

        async def ask(door: str, **arguments: Any) -> Any:
            return json.loads(bytes(await calls.answer(door, raw(arguments))))

        for key in ("plan.json", "cursors/other.json", "steps/other/s.json", "results/mine.json"):
            with pytest.raises(PermissionError):
                await ask("state_write", key=key, data=b"{}", expect="anything")
            with pytest.raises(PermissionError):
                await ask("state_read", key=key)
        with pytest.raises(PermissionError):
            await ask("state_list", prefix="steps/")
        version = await ask("state_write", key="steps/mine/s.json", data=b"{}", expect="absent")
        assert (await ask("state_read", key="steps/mine/s.json"))["version"] == version
        with pytest.raises(KeyError):
            await ask("eval", code="1")

    asyncio.run(main())


@clause("SER-13", "SER-14")
def test_what_a_body_raises_comes_back_as_a_record(folder: Path) -> None:
    """Well-known types are rebuilt, others keep their name; a skip is a skip; a wrong value names its module."""
    run = Run(folder, "raises", "raises_own", "skips", "wrong", keep_going=True)

    known = run.report.outcome_of(isolated_program.raises).error
    own = run.report.outcome_of(isolated_program.raises_own).error
    wrong = run.report.outcome_of(isolated_program.wrong).error
    assert (known.type_name, known.text) == ("KeyError", "'missing'")
    assert isinstance(known.rebuild(), KeyError)
    assert own.type_name.endswith("OwnError")
    assert "of this program" in own.text
    assert isinstance(own.rebuild(), RemoteModuleError)
    assert wrong.type_name.endswith("ResultTypeError")
    assert "'wrong'" in wrong.text
    skipped = next(task for task in run.report.tasks if task.id == "skips")
    assert (skipped.state, skipped.reason) == ("skipped", "module_skipped")


@clause("RUN-31", "RUN-35")
def test_a_process_that_dies_fails_its_attempt_and_the_next_one_has_its_own(folder: Path) -> None:
    """Code and last words are said, retries apply, no process serves twice."""
    run = Run(folder, "dies")

    assert run.value(isolated_program.dies) == 2
    first, second = pids_of(folder)
    assert first != second
    assert "last words" in run.log("dies")
    attempt = next(data for data in run.events("attempt") if "error" in data)
    assert "code 3" in str(attempt["error"])


@clause("RUN-35")
def test_a_kill_from_elsewhere_is_named_with_its_likely_cause(folder: Path) -> None:
    """The kernel kills without a word when memory is short."""
    run = Run(folder, "is_killed")

    assert isinstance(run.cause, ProcessDiedError)
    assert run.cause.how == "SIGKILL, perhaps out of memory"


def test_a_malformed_message_fails_the_attempt_and_kills_the_tree(folder: Path) -> None:
    """A body that writes into the line is not believed (engine.md section 18)."""
    run = Run(folder, "babbles")

    assert isinstance(run.cause, ProcessDiedError)
    assert "malformed" in run.cause.how
    assert run.took_s < WAIT_S, "the body would have slept for a minute"


@clause("RUN-33")
@pytest.mark.parametrize("module", ["sleeps", "in_c"])
def test_a_body_past_its_timeout_is_dead_with_all_it_started(folder: Path, module: str) -> None:
    """Also C code that never returns to the interpreter, orphans, and children that ignore SIGTERM."""
    run = Run(folder, module, terminate_grace_s=60.0)

    assert isinstance(run.cause, ModuleTimeoutError)
    assert run.cause.how == "killed"
    assert len(pids_of(folder)) == 5
    assert living(pids_of(folder)) == []
    (timed_out,) = (task for task in run.report.tasks if task.state == "timed_out")
    assert 4.0 <= timed_out.duration_s < WAIT_S, "3 s timeout, 1 s to cooperate, 0.2 s and not the grace for the rest"


@clause("RUN-33")
def test_a_body_that_cooperates_ends_within_the_grace(folder: Path) -> None:
    """``ctx.cancelled`` turns true in the process too."""
    run = Run(folder, "cooperates", cancel_grace_s=60.0)

    assert isinstance(run.cause, ModuleTimeoutError)
    assert run.took_s < WAIT_S


@clause("RUN-33")
def test_what_a_finished_body_leaves_behind_is_killed(folder: Path) -> None:
    """A background process must not outlive its task, wherever it went."""
    run = Run(folder, "leaves_something")

    assert run.report.status == "succeeded"
    assert len(pids_of(folder)) == 5
    assert living(pids_of(folder)) == []


@clause("RUN-34")
def test_nothing_outlives_a_node_that_is_killed(folder: Path) -> None:
    """kill -9 of the node: body, children, orphans and those that left the session are gone, not after their minute."""
    roots = [str(Path(towline.__file__).parents[1]), str(Path(isolated_program.__file__).parent)]
    node = subprocess.Popen(
        [sys.executable, isolated_program.__file__, "run", "--module", "long", "--state", str(folder / "state")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(roots)},
    )
    give_up_at = time.monotonic() + WAIT_S
    while not (folder / "pids").exists() or len(pids_of(folder)) < 5:
        assert node.poll() is None, node.stderr and node.stderr.read()
        assert time.monotonic() < give_up_at
        time.sleep(0.01)
    pids = pids_of(folder)
    assert len(living(pids)) == 5

    node.send_signal(signal.SIGKILL)
    killed_at = time.monotonic()
    while living(pids):
        assert time.monotonic() < killed_at + WAIT_S, living(pids)
        time.sleep(0.01)
    node.communicate()
