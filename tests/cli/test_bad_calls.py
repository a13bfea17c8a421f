"""One table of calls that are refused: exit code, text, and that nothing ran."""

from __future__ import annotations

import pytest

from cli.shell import Shell
from towline.testing import clause

TWO = """
from towline import Pipeline, SyncContext, module
@module
def a(ctx: SyncContext) -> None: ...
nightly = Pipeline("nightly", [a])
release = Pipeline("release", [a])
"""
PARAMS = """
from dataclasses import dataclass
from towline import Pipeline, Secret, SyncContext, module

@dataclass
class Wanted:
    size: int = 1
    region: str = "eu"
    token: Secret = Secret("none")

@module
def a(ctx: SyncContext) -> None: ...
pipeline = Pipeline("params", [a], params=Wanted)
"""
WRONG = """
from towline import Pipeline, SyncContext, module
@module(timeout=-1)
def a(ctx: SyncContext) -> None: ...
pipeline = Pipeline("wrong", [a])
"""
FAILS = """
from towline import Pipeline, SyncContext, module, result_of
def say(text):
    with open("said.txt", "a") as file:
        file.write(text + "\\n")
@module
def build(ctx: SyncContext) -> int:
    say("build")
    return 1
@module
def deploy(ctx: SyncContext, one: int = result_of(build)) -> None:
    say("deploy")
    raise RuntimeError("no")
pipeline = Pipeline("fails", [deploy])
"""
CALLS = [
    # CLI-01: targets
    (["run"], "Missing argument 'TARGET'"),
    (["run", "nope.py"], "no such file"),
    (["run", "two.py"], "nightly, release"),
    (["run", "two.py:nightli"], "'nightli'.*nightly, release"),
    (["run", "no.such.package"], "no.such.package"),
    (["run", "wrong.py"], r"a \(.*wrong\.py:3\): timeout=-1 cannot be used"),
    # CLI-02: a typo never runs all or nothing
    (["rum", "small.py"], "No such command 'rum'.*run"),
    (["run", "small.py", "--modul", "read"], "No such option '--modul'.*--module"),
    (["run", "small.py", "--mod", "read"], "No such option '--mod'"),
    (["run", "small.py", "-m", "raed"], "--module raed.*'read'"),
    (["run", "small.py", "--skip", "lnt"], "--skip lnt.*'lint'"),
    (["run", "small.py", "--module", "test[3]"], r"--module test\[3\].*'test\[[12]\]'"),
    (["run", "small.py", "--category", "mak"], "--category mak.*'make'"),
    (["run", "small.py", "--phase", "frist"], "--phase frist.*'first'"),
    (["run", "small.py", "--param", "size=1"], "no parameter 'size' in this pipeline"),
    (["run", "params.py", "--param", "sise=1"], "no parameter 'sise'.*region, size, token.*'size'"),
    (["run", "params.py", "--param", "size"], "NAME=VALUE"),
    (["run", "params.py", "--param", "size=big"], "--param size is big.*int"),
    (["run", "params.py", "--param", "token=abc"], "TOWLINE_PARAM_TOKEN"),
    (["run", "small.py", "read"], "unexpected extra argument"),
    # CLI-04
    (["run", "small.py", "-m", "read", "--skip", "read"], "read is both chosen and skipped"),
    (["run", "small.py", "--phase", "second", "--skip", "lint"], "lint is both chosen and skipped"),
    # CLI-05: contradictions
    (["run", "small.py", "--resume", "--fresh"], "--resume and --fresh"),
    (["resume", "small.py", "--fresh"], "--fresh"),
    (["run", "small.py", "--retry-failed", "--keep-failed"], "--retry-failed and --keep-failed"),
    (["run", "small.py", "--json", "--plain"], "--json and --plain"),
    # values
    (["run", "small.py", "--parallel", "0"], "--parallel.*0"),
    (["run", "small.py", "--parallel", "many"], "--parallel.*many"),
    (["run", "small.py", "--module-timeout", "soon"], "'soon' is not a duration like 90, 90s, 5m or 1h30m"),
    (["run", "small.py", "--schedule", "eagr"], "--schedule.*eager"),
    (["run", "small.py", "--run-id", "../x"], r"\.\./x"),
    (["plan", "small.py", "--format", "xml"], "--format.*text"),
    # looking back
    (["show"], r"no run has left anything in .*\.towline"),
    (["why", "read"], "no run has left anything"),
    (["show", "--state", "no/where"], "no run has left anything in no/where"),
    (["cancel", "no/where"], "no such folder"),
    (["cancel", "http://localhost:1"], "control plane"),
]


WRONG_PHASE = """
from towline import Pipeline, SyncContext, module

@module(phase="secnd")
def build(ctx: SyncContext) -> None: ...

pipeline = Pipeline("phases", [build], phases=("first", "second"))
if __name__ == "__main__":
    pipeline.main()
"""


@clause("CLI-06", "CLI-07", "CLI-12")
def test_a_wrong_declaration_ends_python_file_py_as_it_ends_towline_run(small: Shell) -> None:
    """What is found once ``main()`` is reached gets its text and exit 2, whoever started the file."""
    small.write("phases.py", WRONG_PHASE)

    ends = [small.call("phases.py"), small.call("run", "phases.py")]

    assert [end.code for end in ends] == [2, 2]
    assert ends[0].err == ends[1].err
    assert "'second'" in ends[0].err
    assert "Traceback" not in ends[0].err


@clause("CLI-12")
def test_what_python_raises_before_main_is_pythons_to_report(small: Shell) -> None:
    """A declaration that is refused where it stands ends the file before ``main()``: exit 1, the error in the last line.

    ``towline run`` and ``towline check`` load the file themselves, so that they can say it in one line, exit 2.
    """
    small.write("wrong.py", WRONG)

    by_python, by_towline = small.call("wrong.py"), small.call("run", "wrong.py")

    assert (by_python.code, by_towline.code) == (1, 2)
    last = by_python.err.strip().splitlines()[-1]
    assert last.startswith("towline.errors.declaration.DeclarationError: a (")
    assert by_towline.err.strip().removeprefix("towline: ") in last
    assert "Traceback" not in by_towline.err


@clause("CLI-02", "CLI-05", "CLI-12")
@pytest.mark.parametrize(("call", "text"), CALLS, ids=[" ".join(call) for call, _ in CALLS])
def test_a_bad_call_is_refused_before_anything_runs(small: Shell, call: list[str], text: str) -> None:
    """Exit code 2, one message on stderr that says what to write, no traceback, no state, no body."""
    import re

    small.write("two.py", TWO)
    small.write("params.py", PARAMS)
    small.write("wrong.py", WRONG)

    code, out, err = small.call(*call)

    assert code == 2, err
    assert re.search(text, err, re.DOTALL), err
    assert err.startswith("towline: ")
    assert "Traceback" not in err
    assert "abc" not in err, "a secret"
    assert out == ""
    assert not list(small.folder.glob(".towline/*/plan.json"))
    small.said()


@clause("CLI-02")
def test_a_mistyped_name_does_not_replace_an_earlier_plan(shell: Shell) -> None:
    """The operator corrects the typo and resumes: what was done before must still be there."""
    shell.write("fails.py", FAILS)
    shell.run("run", "fails.py", code=1)

    shell.run("run", "fails.py", "--module", "dpeloy", code=2)
    shell.run("run", "fails.py", "--resume", code=1)

    shell.said("build", "deploy", "deploy")


@clause("CLI-14")
def test_an_argument_that_is_no_text_is_refused(small: Shell) -> None:
    """No task can have such a name, and writing it back would fail in the middle of a message."""
    code, _, err = small.call("run", "small.py", "--module", b"re\xffad")

    assert code == 2
    assert "re\\udcffad is no UTF-8 text" in err


@clause("CLI-12")
def test_a_users_mistake_shows_a_traceback_only_on_request(small: Shell) -> None:
    """Whoever debugs Towline itself, or a strange import, wants to see where it came from."""
    plain = small.run("run", "small.py", "-m", "x", code=2)
    debug = small.run("run", "small.py", "-m", "x", code=2, TOWLINE_DEBUG="1")

    assert "Traceback" not in plain.err
    assert "Traceback" in debug.err
    assert debug.err.endswith(plain.err)


@clause("CLI-12")
def test_an_internal_error_shows_its_traceback(small: Shell) -> None:
    """It can only be repaired by someone who sees where it happened."""
    small.write(
        "sitecustomize.py",
        "import towline.cli.loading as l\ndef broken(t): raise ZeroDivisionError('ours')\nl.load = broken\n",
    )

    code, _, err = small.call("check", "small.py", PYTHONPATH=str(small.folder))

    assert code == 70
    assert "Traceback" in err
    assert "internal error: ZeroDivisionError: ours" in err


@clause("CLI-07", "CLI-02")
@pytest.mark.parametrize(
    ("call", "code", "text"),
    [
        (["--module", "raed"], 2, "--module raed.*'read'"),
        (["plan", "--modul", "x"], 2, "No such option"),
        (["resume", "--fresh"], 2, "--fresh"),
        (["chek"], 2, "No such command 'chek'.*'check'"),
    ],
)
def test_a_pipelines_own_main_refuses_the_same(small: Shell, call: list[str], code: int, text: str) -> None:
    """``python file.py`` and ``towline run file.py`` are the same program to an operator."""
    import re

    result = small.call("small.py", *call)

    assert result.code == code
    assert re.search(text, result.err, re.DOTALL), result.err
    assert "Traceback" not in result.err
    small.said()
