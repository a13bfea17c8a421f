"""However a node ends, the commands that it runs end too: real signals to a real pipeline (Linux)."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import commanding_program
import pytest

import towline
from towline.execution import trees, warden_child
from towline.execution.warden import Warden
from towline.testing import clause

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

WAIT_S = 20.0
"""For what must come, on a machine that does much else; what is waited for would last 300 s and more otherwise."""
ROOTS = os.pathsep.join(str(Path(file).parents[up]) for file, up in ((towline.__file__, 1), (__file__, 0)))


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    """Wait for something that must come."""
    begun = time.monotonic()
    while not is_so():
        assert time.monotonic() < begun + WAIT_S, what
        time.sleep(0.01)


def living(pids: list[int]) -> list[int]:
    return [row.pid for row in trees.process_table() if row.pid in pids]


class Node:
    """A process that runs some modules of the commanding program, in a process group of its own."""

    def __init__(self, folder: Path, *modules: str, flags: tuple[str, ...] = (), **environ: str) -> None:
        self.folder, self.modules = folder, modules
        self.output = b""
        chosen = [word for name in modules for word in ("--module", name)]
        self.process = subprocess.Popen(
            [sys.executable, commanding_program.__file__, "run", "--state", str(folder / "state"), *chosen, *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": ROOTS, **environ},
            start_new_session=True,
        )

    def pids(self) -> list[int]:
        file = self.folder / "pids"
        return [int(pid) for pid in file.read_text().split()] if file.exists() else []

    def wait_for_pids(self, count: int) -> list[int]:
        def has_all() -> bool:
            assert self.process.poll() is None, self.process.stdout and self.process.stdout.read()
            return len(self.pids()) >= count

        wait_until(has_all, "the commands did not start")
        assert len(living(self.pids())) == count
        return self.pids()

    def below(self) -> list[int]:
        """Everything that this node has started, its warden and keepers included."""
        return [row.pid for row in trees.members(self.process.pid, trees.process_table())]

    def end(self) -> int:
        """Wait for the end, and for whoever holds its output."""
        self.output, _ = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode

    def states(self) -> set[str]:
        """The states of the tasks that this run is for, as the plan on disk and its journal have them now."""
        plan = json.loads((self.folder / "state" / "plan.json").read_text())
        states = {task["id"]: task.get("state", "pending") for task in plan["tasks"]}
        journal = (self.folder / "state" / "plan.journal").read_text()
        for line in journal.splitlines()[: journal.count("\n")]:
            for record in json.loads(line.partition(" ")[2]).get("records", ()):
                if record["kind"] == "state":
                    states[record["task"]] = record["state"]
        return {states[name] for name in self.modules}


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Node]]:
    nodes: list[Node] = []

    def begin_node(*modules: str, **options: Any) -> Node:
        nodes.append(Node(tmp_path, *modules, **options))
        return nodes[-1]

    yield begin_node
    for node in nodes:
        node.process.kill()
        node.process.communicate()
        for pid in living(node.pids()):
            os.kill(pid, signal.SIGKILL)


def go_on(begin: Callable[..., Node], *modules: str) -> None:
    """Run the same plan again once its commands end by themselves."""
    again = begin(*modules, flags=("--resume",), TOWLINE_TEST_REPAIRED="1")
    assert again.end() == 0, again.output.decode()
    assert again.states() == {"succeeded"}
    assert (again.folder / "first.txt").read_text() == "ran\n", "what was done stays done"


@clause("CMD-06", "RUN-34")
def test_no_command_outlives_a_node_that_is_killed(begin: Callable[..., Node]) -> None:
    """kill -9 of a CI job: nobody is left to clean up, and the next job meets what still runs."""
    node = begin("on_loop", "in_thread", "isolated")
    node.wait_for_pids(9)
    below = node.below()

    os.kill(node.process.pid, signal.SIGKILL)

    wait_until(lambda: not living(below), "something outlived the node")
    node.end()
    assert node.states() == {"running"}
    go_on(begin, "on_loop", "in_thread", "isolated")


@clause("RUN-42", "RUN-48", "CMD-06")
def test_an_interrupt_lets_commands_clean_up_and_then_ends_them(begin: Callable[..., Node]) -> None:
    """Ctrl-C reaches the whole group of the terminal: SIGTERM first, the kill after the grace, exit 130."""
    node = begin("on_loop", "in_thread", "isolated", "polite")
    node.wait_for_pids(10)
    below = node.below()

    os.killpg(node.process.pid, signal.SIGINT)

    assert node.end() == 130, node.output.decode()
    assert living(below) == []
    assert (node.folder / "bye.txt").read_text() == "bye\n"
    assert node.states() == {"cancelled"}
    go_on(begin, "on_loop", "in_thread", "isolated", "polite")


@clause("RUN-42", "CMD-06")
def test_a_sigterm_to_the_node_alone_ends_its_commands_too(begin: Callable[..., Node]) -> None:
    """A supervisor signals the process that it knows; runners that just exit leave their children behind."""
    node = begin("in_thread", "polite")
    node.wait_for_pids(4)
    below = node.below()

    os.kill(node.process.pid, signal.SIGTERM)

    assert node.end() == 143, node.output.decode()
    assert living(below) == []
    assert (node.folder / "bye.txt").read_text() == "bye\n"
    go_on(begin, "in_thread", "polite")


@clause("RUN-48")
def test_a_command_with_a_long_grace_does_not_hold_the_node(begin: Callable[..., Node]) -> None:
    """A shutdown as a whole is bounded: 0.5 s to cooperate, 1.5 s to terminate, 2 s for the rest, and not the command's 600."""
    node = begin("patient")
    node.wait_for_pids(3)
    below = node.below()

    os.kill(node.process.pid, signal.SIGTERM)

    assert node.end() == 143, node.output.decode()
    assert living(below) == []


@clause("RUN-43", "CMD-06")
def test_a_second_signal_kills_at_once(begin: Callable[..., Node]) -> None:
    """Who interrupts twice does not want to wait for any grace, and no orphan either."""
    node = begin("on_loop", "in_thread", "isolated", "patient", TOWLINE_TEST_GRACE="600")
    node.wait_for_pids(12)
    below = node.below()

    os.killpg(node.process.pid, signal.SIGINT)
    wait_until(lambda: "cancelled" in node.states(), "the first signal was not heard")
    os.killpg(node.process.pid, signal.SIGINT)

    assert node.end() == 130, node.output.decode()
    wait_until(lambda: not living(below), "something outlived the node")
    go_on(begin, "on_loop", "in_thread", "isolated", "patient")


# -------------------------------------------------------------------- the warden itself


def descriptors(pid: int) -> dict[int, str]:
    folder, found = f"/proc/{pid}/fd", {}
    for name in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):  # closed between the two looks
            found[int(name)] = os.readlink(f"{folder}/{name}")
    return found


@pytest.fixture
def warden() -> Iterator[Warden]:
    warden = Warden()
    yield warden
    warden.close()


@pytest.fixture
def leader() -> Iterator[subprocess.Popen[bytes]]:
    """A process that leads a session, as a command does."""
    with subprocess.Popen(["sleep", "300"], start_new_session=True) as process:
        yield process
        process.kill()


def process_of(warden: Warden) -> subprocess.Popen[bytes]:
    assert warden._process is not None
    return warden._process


def test_the_warden_holds_nothing_of_the_node(warden: Warden) -> None:
    """It must not keep a CI step open by its output, nor hear a terminal, nor hold a folder."""
    warden.open()
    pid = process_of(warden).pid

    # While it starts, it also reads the files of its own modules.
    wait_until(lambda: set(descriptors(pid)) == {0, 1, 2}, "it keeps more open than its streams")
    held = descriptors(pid)
    assert held.pop(0).startswith("pipe:")
    assert set(held.values()) == {"/dev/null"}
    assert os.getsid(pid) == pid
    assert os.readlink(f"/proc/{pid}/cwd") == "/"


def test_the_warden_goes_when_no_command_runs_and_comes_back(warden: Warden) -> None:
    """A notebook lives for days; a run in it may not leave a process behind."""
    warden.close()
    warden.open()
    first = process_of(warden)
    warden.watch(1)
    warden.close()
    assert first.poll() is None, "a command runs"
    warden.forget(1)
    warden.close()
    assert first.poll() is not None
    assert living([first.pid]) == []
    warden.open()
    assert process_of(warden).pid != first.pid


def test_a_warden_that_was_killed_is_replaced(warden: Warden, leader: subprocess.Popen[bytes]) -> None:
    """Someone cleans up too much: the commands are still guarded, and the run does not fail of it."""
    warden.open()
    warden.watch(leader.pid)
    process_of(warden).kill()
    process_of(warden).wait()

    warden.watch(2**22 + 1)  # no such process
    stdin = process_of(warden).stdin
    assert stdin is not None
    stdin.close()  # what the end of the node does

    assert leader.wait(WAIT_S) == -signal.SIGKILL
    warden._process = None


@clause("CMD-06")
def test_a_pid_that_was_given_to_another_process_is_spared(leader: subprocess.Popen[bytes]) -> None:
    """Pids come again; what began at another moment is not the command that was told."""
    row = trees.look_up(leader.pid)
    assert row is not None

    warden_child.kill_tree(leader.pid, None)
    warden_child.kill_tree(leader.pid, row.born + "0")
    assert leader.poll() is None
    warden_child.kill_tree(leader.pid, row.born)
    assert leader.wait(WAIT_S) == -signal.SIGKILL


def test_a_fork_that_holds_the_pipe_does_not_hide_the_end_of_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """A multiprocessing child inherits every descriptor: the parent's pid tells what the pipe does not."""
    monkeypatch.setattr(warden_child, "NODE_LOOK_S", 0.01)
    told, tell = os.pipe()
    try:
        os.write(tell, b"+4194305\n+4194306\n-4194305\n")
        assert warden_child.leaders_left(told, node=os.getpid()) == {4194306: None}
    finally:
        os.close(told)
        os.close(tell)
