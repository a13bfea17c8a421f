"""State on a server from the command line: runs, resumes, previews and questions, from any folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cli.shell import Shell
from towline.testing import clause
from towline.testing.redis_server import RedisTestServer

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
from pathlib import Path
from towline import Pipeline, SyncContext, module, result_of

@module(produces={"wheel": "dist/*.whl"})
def build(ctx: SyncContext) -> int:
    Path("dist").mkdir(exist_ok=True)
    Path("dist/a.whl").write_text("wheel")
    with open("said.txt", "a") as file:
        file.write("build\\n")
    return 7

@module(consumes=[build.artifact("wheel", into="got")])
def check(ctx: SyncContext, built: int = result_of(build)) -> int:
    if not Path("answer.txt").exists():
        raise ValueError("no answer")
    assert Path("got/a.whl").read_text() == "wheel"
    return built

pipeline = Pipeline("wheels", [check])
"""


@pytest.fixture
def machines(tmp_path: Path) -> tuple[Shell, Shell]:
    """Two folders with the same program and nothing else."""
    made = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        shell = Shell(tmp_path / name)
        shell.write("wheels.py", PROGRAM)
        made.append(shell)
    return made[0], made[1]


@clause("STATE-19", "ART-15", "PLAN-35")
def test_a_failed_run_is_resumed_on_another_machine(machines: tuple[Shell, Shell], url: str) -> None:
    """Done work is not done again there: results and artifacts come from the server."""
    one, two = machines
    one.run("run", "wheels.py", "--state", url, code=1)
    two.write("answer.txt", "42")

    preview = two.run("plan", "wheels.py", "--resume", "--state", url)
    two.run("run", "wheels.py", "--resume", "--state", url)

    assert "build" in preview.out
    assert "kept" in preview.out
    one.said("build")
    two.said()


@clause("PLAN-37", "ART-15")
def test_a_producer_whose_files_have_run_out_runs_again(
    machines: tuple[Shell, Shell], url: str, server: RedisTestServer
) -> None:
    """Artifacts on a server do not live for ever; a resume of days later makes them again, and does not fail."""
    one, two = machines
    one.run("run", "wheels.py", "--state", url, code=1)
    keys = server.command("KEYS towline:{wheels}:~artifact/*").split(b"\r\n")
    assert server.command("DEL " + keys[-1].decode()) == b":1"
    two.write("answer.txt", "42")

    two.run("run", "wheels.py", "--resume", "--state", url)

    two.said("build")


@clause("PLAN-27")
def test_why_reads_the_plan_on_a_server(machines: tuple[Shell, Shell], url: str) -> None:
    """Whoever is asked at night has no access to the machine that ran."""
    one, two = machines
    one.run("run", "wheels.py", "--state", url, code=1)

    answer = two.run("why", "check", "--state", url)

    assert "check is failed" in answer.out
    assert "no answer" in answer.out


@clause("REP-06")
def test_history_says_where_it_lies(machines: tuple[Shell, Shell], url: str) -> None:
    """Reports and logs stay in the folder of the machine; a URL is refused with the way there."""
    one, _ = machines
    one.run("run", "wheels.py", "--state", url, code=1)

    for command in (("runs",), ("show",)):
        refused = one.run(*command, "--state", url, code=2)
        assert ".towline/<pipeline> of the machine that was the master" in refused.err
    [row] = one.run("runs", "--json").json()["runs"]
    assert row["state"] == "failed"
    assert "ValueError" in one.run("show").out


def test_a_server_without_a_plan_says_so(machines: tuple[Shell, Shell], url: str) -> None:
    """And never shows the password."""
    one, _ = machines
    refused = one.run("why", "check", "--state", url.replace("redis://", "redis://:@"), code=2)
    assert "no run has left anything" in refused.err


@clause("ART-15")
def test_artifacts_are_fetched_from_the_server_that_has_them(
    machines: tuple[Shell, Shell], url: str, server: RedisTestServer
) -> None:
    """The machine that ran knows from its report where they are; any other one names the server."""
    one, two = machines
    one.run("run", "wheels.py", "--state", url, code=1)

    listed = one.run("artifacts", "--json").json()["artifacts"]
    assert two.run("artifacts", "--state", url, "--json").json()["artifacts"] == listed
    assert [row["name"] for row in listed] == ["wheel"]
    for shell, flags in ((one, ()), (two, ("--state", url))):
        shell.run("artifacts", "latest", "wheel", "--into", "fetched", *flags)
        assert (shell.folder / "fetched" / "a.whl").read_text() == "wheel"

    refused = two.run("artifacts", "another", "--state", url, code=2)
    assert "another" in refused.err
    server.command("FLUSHALL")
    assert "does not have it" in one.run("artifacts", "latest", "wheel", "--into", "again", code=1).err
    assert not list((one.folder / "again").glob("*")), "nothing is written of what is not there"


def test_a_server_that_is_gone_is_named(machines: tuple[Shell, Shell]) -> None:
    """Days later it may be off; the message says which one, and that nothing is wrong with the run."""
    one, _ = machines
    with RedisTestServer() as gone:
        one.run("run", "wheels.py", "--state", gone.url, code=1)

    refused = one.run("artifacts", "latest", "wheel", code=4)

    assert gone.url in refused.err
    assert "fetching build/wheel" in refused.err
