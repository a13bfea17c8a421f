"""What a tired operator meets: full disks, damaged folders, runs that were killed, names of expanded modules."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from cli.shell import TOWLINE, Shell, ended, wait_for_file
from towline.cli.settings import KNOWN_ELSEWHERE, OPEN_PREFIXES, SETTINGS
from towline.testing import clause

EACH = """
from pathlib import Path
from towline import Pipeline, SyncContext, module, result_of

@module
def load(ctx: SyncContext) -> list[str]:
    return ["x", "y"]

@module(each=result_of(load), produces={"box": "*.box"})
def pack(ctx: SyncContext, item: str) -> str:
    Path(f"{item}.box").write_text(item)
    return item

@module(matrix={"n": [1, 2]})
def test(ctx: SyncContext) -> None: ...

@module
def ship(ctx: SyncContext, packed: list[str] = result_of(pack)) -> None:
    if Path("stop").exists():
        raise OSError("no truck")

pipeline = Pipeline("each", [ship, test])
"""
LOOKS = (["show"], ["runs"], ["runs", "--json"], ["plan", "small.py"], ["check", "small.py"], ["why", "read"])


@pytest.fixture
def each(shell: Shell) -> Shell:
    """A folder with a program that expands a module over items, and one over a matrix."""
    shell.write("each.py", EACH)
    return shell


@clause("REP-13", "CLI-12")
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no device that is always full")
@pytest.mark.parametrize("call", LOOKS, ids=" ".join)
def test_a_result_that_cannot_be_written_is_no_success(small: Shell, call: list[str]) -> None:
    """``towline plan > plan.txt && deploy`` on a full disk: a message and a code, no traceback."""
    small.run("run", "small.py")
    with open("/dev/full", "wb") as full:
        code, _, err = ended(small.start(*call, stdout=full))
    assert code == 1
    assert err == "towline: standard output cannot be written: No space left on device.\n"


@clause("REP-13")
@pytest.mark.parametrize("call", [*LOOKS, ["run", "small.py"], ["--help"]], ids=" ".join)
def test_a_stream_that_the_caller_closed_is_no_error(small: Shell, call: list[str]) -> None:
    """``>&-``: whoever asks for nothing gets nothing, and the code of what was done."""
    small.run("run", "small.py")
    line = f'"{TOWLINE}" {" ".join(call)} >&-'
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TOWLINE_")}
    done = subprocess.run(
        line, shell=True, cwd=small.folder, env=environ, stderr=subprocess.PIPE, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@clause("REP-04")
def test_a_damaged_pipeline_hides_no_other(each: Shell, small: Shell) -> None:
    """Somebody looks at a healthy pipeline of the same folder: one warning, and everything else."""
    each.run("run", "each.py")
    small.run("run", "small.py")
    for damaged in ("each", "third"):
        plan = each.folder / ".towline" / damaged / "plan.json"
        plan.parent.mkdir(exist_ok=True)
        plan.write_bytes(b'{"schema"')

    listed, shown, why = each.run("runs"), each.run("show"), each.run("why", "read")

    assert [line.split()[3] for line in listed.out.splitlines()] == ["small", "each"], "its reports are whole"
    assert "small r-" in shown.out
    assert why.out.startswith("read is succeeded")
    for told in (listed, shown, why):
        assert told.err.count("plan.json is damaged") == 2, told.err


@clause("CLI-09")
def test_every_variable_that_is_read_is_known() -> None:
    """A warning that a variable changes nothing, about one that does, is a lie."""
    import re

    import towline

    known = {setting.variable for setting in SETTINGS} | KNOWN_ELSEWHERE
    assert towline.__file__ is not None
    texts = [file.read_text(encoding="utf-8") for file in Path(towline.__file__).parent.rglob("*.py")]
    read = {name for text in texts for name in re.findall(r'"(TOWLINE_[A-Z_]*[A-Z])"', text)}
    assert {"TOWLINE_COORDINATOR", "TOWLINE_INSTANCE", "TOWLINE_RUN_ID"} <= read
    assert {name for name in read - known if not name.startswith(OPEN_PREFIXES)} == set()


@clause("REP-06")
def test_why_of_an_expanded_module_lists_its_tasks(each: Shell) -> None:
    """The name that stands in the file is the one that people type."""
    each.run("run", "each.py")

    joined, matrix = each.run("why", "pack").out, each.run("why", "test").out

    assert joined.splitlines()[0] == "pack is succeeded: all of its 2 tasks succeeded"
    assert joined.splitlines()[1:] == ["  pack[x] is succeeded", "  pack[y] is succeeded"]
    assert matrix.splitlines() == ["test has 2 tasks: 2 succeeded", "  test[1] is succeeded", "  test[2] is succeeded"]
    assert [row["task"] for row in each.run("why", "test", "--json").json()["tasks"]] == ["test[1]", "test[2]"]
    assert "test[3]" in each.run("why", "test[3]", code=2).err


@clause("REP-06", "REP-07")
def test_children_stand_below_their_module_with_its_count(each: Shell) -> None:
    """Forty tasks at the end of a table, far from what they belong to, are read by nobody."""
    each.write("stop", "")
    first = each.run("run", "each.py", code=1)
    (each.folder / "stop").unlink()
    resumed = each.run("run", "each.py", "--resume")

    rows = [line.split() for line in each.run("show").out.splitlines()[1:8]]
    assert [row[0] for row in rows] == ["load", "test[1]", "test[2]", "pack", "pack[x]", "pack[y]", "ship"]
    table = resumed.out.splitlines()
    assert ["pack", "kept", "2/2"] in [line.split() for line in table]
    assert ["pack", "ok", "2/2"] in [line.split() for line in first.out.splitlines()]


@clause("REP-06")
def test_a_task_is_shown_without_python(each: Shell) -> None:
    """Artifacts by name, size and digest."""
    each.run("run", "each.py")
    shown = each.run("show", "--task", "pack[x]").out
    assert "artifact: box  " in shown
    assert "{" not in shown
    assert "pack[x]/box" in each.run("artifacts").out, "the latest run needs no name"


@clause("CLI-02")
def test_names_of_runs_are_suggested(each: Shell) -> None:
    """``latest`` is a name too."""
    each.folder.joinpath(".towline/each").mkdir(parents=True)
    assert "Did you mean 'latest'?" in each.run("show", "latst", code=2).err, "nothing is reported yet"
    each.run("run", "each.py", "--run-id", "r-1")
    assert "Did you mean 'latest'?" in each.run("show", "latst", code=2).err
    assert "`towline runs` lists" in each.run("diff", "latest", "nosuch", code=2).err
    assert "--run-id is empty" in each.run("run", "each.py", "--run-id", "", code=2).err


@clause("CLI-06")
def test_the_end_of_a_failed_run_says_how_to_go_on(each: Shell) -> None:
    """It is the question that everybody has then."""
    each.write("stop", "")
    failed = each.run("run", "each.py", code=1).out.splitlines()
    assert failed[-4] == "To go on, run it again with --resume: what is done is kept, what failed runs again."
    assert "A plain run starts anew, and is refused while cursors have moved." in failed[-3]
    each.write("each.py", EACH.replace("[ship, test]", '[ship, test], resume="auto"'))
    assert "To go on, run it again: what is done is kept" in each.run("run", "each.py", code=1).out
    (each.folder / "stop").unlink()
    assert "To go on" not in each.run("run", "each.py").out


@clause("CLI-06")
def test_a_cancelled_run_says_how_to_go_on(shell: Shell) -> None:
    """After Ctrl-C the way on is a flag, which nobody remembers."""
    import signal

    shell.write(
        "slow.py",
        "import asyncio\nfrom pathlib import Path\nfrom towline import Context, Pipeline, module\n@module\n"
        "async def wait(ctx: Context) -> None:\n    Path('waits').touch()\n    await asyncio.sleep(60)\n"
        "pipeline = Pipeline('slow', [wait])\n",
    )
    process = shell.start("run", "slow.py")
    wait_for_file(shell.folder / "waits")
    process.send_signal(signal.SIGINT)
    code, out, _ = ended(process)
    assert code == 130
    assert "To go on, run it again with --resume" in "\n".join(out.splitlines()[-4:])


NEEDS = """
from dataclasses import dataclass
from typing import Literal
from towline import Pipeline, Secret, SyncContext, module

@dataclass
class Wanted:
    need: int
    region: Literal["eu", "us"]
    names: list[str]
    token: Secret
    strict: bool = False
    rows: int = 1

@module
def call(ctx: SyncContext) -> None:
    ctx.run("false")

pipeline = Pipeline("needs", [call], params=Wanted)
plain = Pipeline("plain", [call])
"""


@pytest.mark.parametrize("call", ["run", "check", "plan"])
@clause("MOD-22")
def test_missing_parameters_are_named_as_they_are_typed(shell: Shell, call: str) -> None:
    """Whoever starts a pipeline of somebody else sees what to type, all of it at once."""
    shell.write("needs.py", NEEDS)
    err = shell.run(call, "needs.py:pipeline", code=2).err
    assert "need, region, names, token have no value and no default" in err
    assert "give --param need=INT --param region=eu|us --param names=JSON and the variable TOWLINE_PARAM_TOKEN" in err


@clause("CLI-02", "MOD-22")
def test_wrong_parameters_are_told_together(shell: Shell) -> None:
    """One mistake for each call costs an hour when the queue is long."""
    shell.write("needs.py", NEEDS)
    wrong = ("strict=maybe", "rows=x", "foo=1", "token=abc", "need=1", "region=eu", "nothing")
    flags = [part for one in wrong for part in ("-p", one)]
    err = shell.run("run", "needs.py:pipeline", *flags, code=2).err
    assert "6 things to repair" in err
    for text in (
        "strict is maybe, which is no bool: write strict=true|false",
        "rows=INT",
        "'foo'",
        "TOKEN",
        "names=JSON",
    ):
        assert text in err, err
    assert "abc" not in err


@clause("CLI-08")
@pytest.mark.parametrize(
    ("table", "text"),
    [
        ("[tool.towline]\nparalel = 2", "no setting of [tool.towline] has this name. Did you mean 'parallel'?\n"),
        ("[tool.towline", "[tool.towline] is not known ("),
        ("[tool]\ntowline = 3", "it takes a table of settings."),
    ],
)
def test_a_wrong_table_is_told_with_its_file_once(small: Shell, table: str, text: str) -> None:
    """The path once, a sentence that ends once."""
    small.write("pyproject.toml", table)
    err = small.run("run", "small.py", code=2).err
    assert text in err
    assert err.count("pyproject.toml") == 1


@clause("DIST-01")
def test_a_worker_without_coordinator_is_told_what_to_name(small: Shell) -> None:
    """The text is a sentence that can be acted on."""
    err = small.run("worker", "small.py", code=2).err
    assert err.startswith(
        "towline: coordinator is not given (neither flag nor variable): name it with --coordinator URL"
    )


@clause("REP-07")
def test_a_failed_command_of_a_sync_body_shows_the_line_that_called_it(shell: Shell) -> None:
    """Not the frames of Python's and Towline's own machinery, nor does ``why``."""
    shell.write("needs.py", NEEDS)
    out = shell.run("run", "needs.py:plain", code=1).out
    why = shell.run("why", "call").out
    assert 'ctx.run("false")' in out
    assert "concurrent" not in out
    assert "needs.py" in next(line for line in why.splitlines() if line.startswith("  at File"))


PLANNED = """
from towline import Pipeline, SyncContext, module, result_of

@module
def load(ctx: SyncContext) -> list[str]:
    return ["x", "y"]

@module(each=result_of(load))
def pack(ctx: SyncContext, item: str) -> str:
    return item

@module
def ship(ctx: SyncContext, packed: list[str] = result_of(pack)) -> None: ...

@module(run_if=lambda ctx: True)
def maybe(ctx: SyncContext, _: None = result_of(ship)) -> None: ...

@module
def tell(ctx: SyncContext, _: None = result_of(maybe)) -> None: ...

pipeline = Pipeline("planned", [tell])
"""


@clause("PLAN-11")
def test_what_waits_for_items_runs_and_only_its_count_is_unknown(shell: Shell) -> None:
    """A plan that calls everything unknown says nothing."""
    shell.write("planned.py", PLANNED)
    plan = shell.run("plan", "planned.py").out
    decided = {words[1]: words[2] for words in map(str.split, plan.splitlines()[3:]) if words[0].isdigit()}
    assert decided == {"load": "run", "pack": "run", "ship": "run", "maybe": "unknown", "tell": "unknown"}
    assert "one for each item of load; their count is unknown" in plan


MOVED = """
import os
from dataclasses import dataclass
from towline import Pipeline, SyncContext, module, result_of

@dataclass
class Wanted:
    size: int = 1

@module
def load(ctx: SyncContext) -> int:
    return 1

@module
def pack(ctx: SyncContext, one: int = result_of(load)) -> None:
    if not os.path.exists("go"):
        os.kill(os.getpid(), 9)

pipeline = Pipeline("moved", [pack], params=Wanted)
"""


@clause("PLAN-11")
def test_plan_looks_also_where_a_run_would_be_refused(shell: Shell) -> None:
    """It changes nothing, so there is nothing to refuse: it says what the run would say."""
    shell.write("moved.py", MOVED)
    shell.run("run", "moved.py", code=-9)

    plan = shell.run("plan", "moved.py", "-p", "size=2").out
    data = shell.run("plan", "moved.py", "-p", "size=2", "--json").json()

    assert plan.startswith("a run would be refused: the plan was made with other parameters; changed: size.")
    assert "moved: 2 tasks in 2 tiers (2 run)" in plan
    assert data["refused"].startswith("the plan was made with other parameters")
    shell.run("run", "moved.py", "-p", "size=2", code=2)


@clause("PLAN-35")
def test_changed_code_is_said_to_be_kept_and_counts_agree(shell: Shell) -> None:
    """ "code changed" reads as "will run again", which it does not."""
    shell.write("moved.py", MOVED)
    shell.run("run", "moved.py", code=-9)
    shell.write("go", "")
    shell.write(
        "moved.py",
        MOVED.replace("return 1", "return 1 + 0")
        .replace("[pack]", "[pack, more]")
        .replace("pipeline =", "@module\ndef more(ctx: SyncContext) -> None: ...\n\npipeline ="),
    )

    plan = shell.run("plan", "moved.py", "--resume").out
    run = shell.run("run", "moved.py", "--resume").out

    for shown in (plan, run):
        assert "unchanged: 2 tasks\n" in shown, "one of them has never run"
        assert "code changed: load (kept; to run them again, give their modules another version=)" in shown
    assert "moved: 3 tasks in 2 tiers (1 kept, 2 run)" in plan
