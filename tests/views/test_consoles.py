"""Which console a run gets, and what each writes where."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from towline.testing import clause
from towline.views.consoles import JsonConsole, Plain, console_for
from views.scenes import Pipe, Scene, done, planned, report


class Terminal(Pipe):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@clause("REP-09")
@pytest.mark.parametrize(
    ("is_terminal", "environ", "flags", "chosen"),
    [
        (True, {}, {}, "LiveConsole"),
        (True, {"NO_COLOR": "1"}, {}, "LiveConsole"),
        (True, {}, {"plain": True}, "Plain"),
        (True, {"TERM": "dumb"}, {}, "Plain"),
        (True, {"CI": "true"}, {}, "Plain"),
        (False, {}, {}, "Plain"),
        (False, {"FORCE_COLOR": "1"}, {}, "Plain"),
        (True, {}, {"as_json": True}, "JsonConsole"),
    ],
)
def test_the_console_fits_where_it_writes(
    is_terminal: bool, environ: dict[str, str], flags: dict[str, bool], chosen: str
) -> None:
    """A live view in a pipe would fill a log with cursor codes, a plain one on a terminal would waste it."""
    out = Terminal() if is_terminal else Pipe()

    assert type(console_for(out, Pipe(), environ, **flags)).__name__ == chosen


@clause("REP-09")
def test_colour_in_a_pipe_only_when_forced_and_never_against_no_color() -> None:
    """Some CI viewers show colours; whoever says NO_COLOR means it."""
    lines = {}
    for name, environ in {
        "plain": {},
        "forced": {"FORCE_COLOR": "1"},
        "both": {"FORCE_COLOR": "1", "NO_COLOR": "1"},
    }.items():
        out = Pipe()
        console_for(out, Pipe(), environ).finish(report(done("lint")))
        lines[name] = out.getvalue()

    assert "\x1b" not in lines["plain"]
    assert "\x1b[32mok\x1b[0m" in lines["forced"]
    assert lines["both"] == lines["plain"]


@clause("CTL-25")
def test_json_writes_events_to_stdout_and_text_for_people_to_stderr() -> None:
    """A program that reads the events must not meet a line that is none."""
    out, err = Pipe(), Pipe()
    console = JsonConsole(out, err, 80)
    scene = Scene().begin(planned("lint"))
    scene.said(1, "lint", "two\nlines")
    scene.tell("run_ended", 2, run_state="succeeded", exit_code=0, counts={})

    console.greet("new plan: there is no earlier one")
    console.take(scene.events)
    console.finish(report(done("lint")))

    events = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [event["kind"] for event in events] == ["run_started", "plan", "output", "run_ended"]
    assert err.getvalue().startswith("new plan: there is no earlier one\n")
    assert "flights r-1 succeeded" in err.getvalue()


@clause("REP-13", "CTL-25")
def test_json_to_a_reader_that_left_ends_the_printing() -> None:
    """``towline run --json | jq -n input`` reads one event and goes."""
    out = Pipe(breaks_after=0)
    console = JsonConsole(out, Pipe(), 80)

    console.take(Scene().begin(planned("lint")).events)
    console.take(Scene().begin(planned("lint")).events)

    assert out.getvalue() == ""


@clause("SEC-08")
def test_the_hosts_viewer_is_told_of_a_secret_raw_and_at_once() -> None:
    """What Towline does not write itself, a child's raw output say, is masked by the host's viewer."""
    out, err = Pipe(), Pipe()
    console_for(out, err, {"GITHUB_ACTIONS": "true"}).mask("50%\nsecret")
    assert out.getvalue() == "::add-mask::50%25%0Asecret\n::add-mask::50%25\n::add-mask::secret\n"

    out = Pipe()
    console_for(out, err, {"TF_BUILD": "True"}).mask("50%")
    assert out.getvalue() == "##vso[task.setsecret]50%AZP25\n"

    out, err = Pipe(), Pipe()
    console_for(out, err, {"GITHUB_ACTIONS": "true"}, as_json=True).mask("secret")
    assert (out.getvalue(), err.getvalue()) == ("", "::add-mask::secret\n")

    out = Pipe()
    console_for(out, err, {}).mask("secret")
    assert out.getvalue() == ""


PROGRAM = """
import time
from towline import Pipeline, SyncContext, module, result_of

@module
def read(ctx: SyncContext) -> int:
    print("reading \\N{LATIN SMALL LETTER U WITH DIAERESIS}" + "x" * 200)
    ctx.progress(1, 3)
    time.sleep(1.4)  # long enough for the view to ask what waits for what, which it does each second
    return 1

@module
def build(ctx: SyncContext, count: int = result_of(read)) -> int:
    raise ValueError("boom " + chr(27) + "[31mred")

pipeline = Pipeline("shown", [build])
"""


def on_a_terminal(folder: Path, columns: int, **environ: str) -> tuple[str, int]:
    """Run the program on a real pseudo terminal; return all it wrote, and its exit code."""
    (folder / "shown.py").write_text(PROGRAM, encoding="utf-8")
    main, child = pty.openpty()
    termios.tcsetwinsize(child, (24, columns))
    base = {name: value for name, value in os.environ.items() if not name.startswith(("TOWLINE_", "CI", "GITHUB_"))}
    base.pop("COLUMNS", None)
    process = subprocess.Popen(
        [str(Path(sys.executable).with_name("towline")), "run", "shown.py"],
        cwd=folder,
        env=base | {"TERM": "xterm-256color"} | environ,
        stdin=subprocess.DEVNULL,
        stdout=child,
        stderr=child,
    )
    os.close(child)
    written = b""
    while select.select([main], [], [], 60)[0]:
        try:
            chunk = os.read(main, 65536)
        except OSError:  # the other end is closed
            break
        if not chunk:
            break
        written += chunk
    os.close(main)
    return written.decode(), process.wait(timeout=30)


CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@clause("CTL-24", "REP-09")
@pytest.mark.parametrize("columns", [60, 80])
def test_the_live_view_on_a_real_terminal_fits_and_gives_the_screen_back(tmp_path: Path, columns: int) -> None:
    """A torn view, or a terminal without a cursor afterwards, is the first thing that an operator would see."""
    written, code = on_a_terminal(tmp_path, columns)

    assert code == 1
    assert written.count("\x1b[?25l") == written.count("\x1b[?25h") == 1, "the cursor is hidden once, shown once"
    frames = [
        line for line in CODES.sub("", written).replace("\r", "\n").splitlines() if line.startswith((">", ".", "+"))
    ]
    assert any(line.startswith("> read") and "1/3" in line for line in frames)
    assert any(line.startswith(". build") and "waits for read" in line for line in frames)
    assert max(len(line.rstrip()) for line in frames) <= columns
    assert "first failure: build failed (attempt 1 on local)" in written.replace("\r", "")
    assert "reading ü" in written


@clause("REP-09", "REP-13")
def test_the_live_view_without_colour_and_unicode(tmp_path: Path) -> None:
    """NO_COLOR leaves no colour, and an ASCII terminal gets ASCII, not an encoding error."""
    written, code = on_a_terminal(tmp_path, 60, NO_COLOR="1", PYTHONIOENCODING="ascii", LC_ALL="C")

    assert code == 1
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", written)
    assert written.isascii()
    assert "boom \\x1b[31mred" in written, "text of a body does not colour the terminal"
    assert "reading ?" in written


def test_plain_is_harmless_to_close_twice() -> None:
    """A failing run closes its console on the way out, and again at the end."""
    out = Pipe()
    console = console_for(out, Pipe(), {})
    assert isinstance(console, Plain)
    console.close()
    console.close()
    assert out.getvalue() == ""
