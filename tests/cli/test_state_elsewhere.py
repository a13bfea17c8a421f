"""A run whose state lies on a server, from the folder where its master lives: cancel, look, ask."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from cli.shell import Shell, ended, wait_for_file
from towline.testing import clause
from towline.testing.redis_server import RedisTestServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROGRAM = """
import asyncio
from pathlib import Path
from towline import Context, Options, Pipeline, module

@module
async def first(ctx: Context) -> int:
    return 1

@module(after=[first])
async def hold(ctx: Context) -> None:
    ctx.log.info("it holds")
    Path("holds").touch()
    await asyncio.sleep(0 if Path("pass").exists() else 60)

pipeline = Pipeline("{name}", [hold], options=Options(worker_timeout_s=3, master_timeout_s=6))
"""


@pytest.fixture
def held(shell: Shell, url: str) -> Iterator[Shell]:
    """A folder with a run that waits in its second task; its state lies on the server."""
    shell.write("held.py", PROGRAM.format(name="held"))
    process = shell.start("run", "held.py", "--coordinator", url, "--run-id", "r-held", "--plain")
    try:
        wait_for_file(shell.folder / "holds")
        yield shell
    finally:
        process.kill()
        ended(process)


@clause("CTL-28")
@pytest.mark.parametrize("named", ["folder", "url", "run"])
def test_a_run_on_a_server_is_cancelled_from_any_machine(held: Shell, url: str, tmp_path: Path, named: str) -> None:
    """Whoever must stop a run has the URL that it meets at, or its folder; not always a shell on its host."""
    (tmp_path / "elsewhere").mkdir()
    other = Shell(tmp_path / "elsewhere")

    wrong = other.run("cancel", url, "--run-id", "r-other", code=2)
    if named == "folder":
        said = held.run("cancel", ".towline/held")
    else:
        said = other.run("cancel", url, *(["--run-id", "r-held"] if named == "run" else []))
    again = other.run("cancel", url, code=2)

    assert "r-held" in wrong.err
    assert "r-held has stopped" in said.out
    assert "nothing runs there" in again.err
    report = held.report()
    assert (report["status"], report["exit_code"]) == ("cancelled", 130)
    assert any("towline cancel" in warning for warning in report["warnings"])


@clause("CTL-28")
def test_a_request_is_for_one_run_alone(held: Shell, url: str) -> None:
    """The run that is started after the cancelled one must not find the request and stop too."""
    held.run("cancel", url)
    (held.folder / "pass").touch()
    held.run("run", "held.py", "--coordinator", url, "--run-id", "r-next", "--fresh")


@clause("REP-06")
def test_a_living_run_is_seen_from_its_folder(held: Shell) -> None:
    """The plan is on the server, the folder says where: whoever sits there need not know the URL."""
    wait_for_file(held.folder / ".towline" / "held" / "runs" / "r-held" / "log" / "hold.txt")  # written twice a second
    [row] = held.run("runs", "--json").json()["runs"]
    shown = held.run("show").out
    task = held.run("show", "latest", "--task", "HOLD").out
    document = held.run("show", "r-held", "--task", "first", "--json").json()
    misspelt = held.run("show", "--task", "frist", code=2).err
    why = held.run("why", "first").out

    assert (row["run_id"], row["state"]) == ("r-held", "running")
    assert "r-held running: 1 succeeded, 1 running" in shown
    assert "state: running" in task
    assert "it holds" in task
    assert document["task"]["state"] == "succeeded"
    assert "Did you mean 'first'" in misspelt
    assert "first is succeeded" in why


@clause("PLAN-27")
def test_why_works_after_the_run_too(shell: Shell, url: str) -> None:
    """What `show` lists, `why` explains."""
    shell.write("held.py", PROGRAM.format(name="held"))
    (shell.folder / "pass").touch()
    shell.run("run", "held.py", "--state", url)

    assert "hold is succeeded" in shell.run("why", "hold").out
    assert "hold" in shell.run("show").out


@clause("PLAN-27")
def test_a_folder_forgets_the_server_once_its_state_is_its_own(shell: Shell, url: str) -> None:
    """A run without a server, after one with it: the folder's own plan is the one that counts."""
    shell.write("held.py", PROGRAM.format(name="held"))
    (shell.folder / "pass").touch()
    shell.run("run", "held.py", "--state", url)
    pointer = shell.folder / ".towline" / "held" / "state-at.json"
    assert json.loads(pointer.read_text())["state"] == url
    shell.run("run", "held.py")
    assert not pointer.exists()
    assert "hold is succeeded" in shell.run("why", "hold").out


def test_reports_are_read_when_the_server_is_gone(shell: Shell) -> None:
    """History needs no server: only of a run without a report the plan is asked for."""
    shell.write("held.py", PROGRAM.format(name="held"))
    (shell.folder / "pass").touch()
    with RedisTestServer() as gone:
        shell.run("run", "held.py", "--state", gone.url)

    listed = shell.run("runs")
    refused = shell.run("why", "hold", code=4)

    assert "succeeded" in listed.out
    assert listed.err == ""
    assert gone.url in refused.err


@clause("PLAN-27")
def test_one_of_several_pipelines_on_a_server_is_named(shell: Shell, url: str) -> None:
    """What the message says to give can be given."""
    (shell.folder / "pass").touch()
    for name in ("one", "two"):
        shell.write(f"{name}.py", PROGRAM.format(name=name))
        shell.run("run", f"{name}.py", "--state", url)

    refused = shell.run("why", "hold", "--state", url, code=2)
    assert f"--state {url}/0 --pipeline one, --state {url}/0 --pipeline two" in refused.err
    assert "hold is succeeded" in shell.run("why", "hold", "--state", f"{url}/0", "--pipeline", "one").out
    misspelt = shell.run("why", "hold", "--state", url, "--pipeline", "tow", code=2)
    assert "Did you mean 'two'" in misspelt.err
    here = shell.run("why", "hold", code=2)
    assert "--state .towline/one, --state .towline/two" in here.err
    assert "hold is succeeded" in shell.run("why", "hold", "--pipeline", "two").out


@clause("STATE-08")
def test_the_owner_is_named_with_the_way_to_stop_it(held: Shell, url: str) -> None:
    """ "Stop it" says nothing; the command that stops it does."""
    refused = held.run("run", "held.py", "--state", url, "--run-id", "r-two", code=4)
    assert f"towline cancel {url}" in refused.err
