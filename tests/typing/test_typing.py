"""The public surface is typed as promised: sound programs are accepted, marked mistakes refused, by two checkers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"
SOUND = ("usage.py", "usage_offload.py", "usage_tests.py")
REFUSED = ("refused.py", "refused_offload.py", "refused_tests.py")
MARK = "  # refused: "

# Complaints that a line would get even if its types were right: they prove nothing.
BESIDE_THE_POINT = re.compile(r"reportUnused|reportUnknown|reportUntyped|reportMissingTypeStubs|unused-|untyped-")


def run(argv: list[str]) -> str:
    """Run a checker that is installed beside this interpreter."""
    program = Path(sys.executable).with_name(argv[0])
    env = os.environ | {"MYPYPATH": os.pathsep.join([str(SOURCE), str(HERE)])}
    done = subprocess.run(
        [program, *argv[1:]], cwd=HERE, env=env, capture_output=True, text=True, check=False, timeout=110
    )
    return done.stdout


def mypy_lines(files: tuple[str, ...]) -> set[tuple[str, int, str]]:
    """Return (file, line, text) of what mypy refuses in these files."""
    output = run(["mypy", "--strict", "--config-file=", "--python-version=3.11", "--no-error-summary", *files])
    found = re.findall(r"^(.+?):(\d+): error: (.*)  \[([a-z-]+)\]$", output, re.MULTILINE)
    return {
        (Path(name).name, int(line), text)
        for name, line, text, code in found
        if not BESIDE_THE_POINT.match(code) and Path(name).name in files
    }


def basedpyright_lines(files: tuple[str, ...]) -> set[tuple[str, int, str]]:
    """Return the same of basedpyright in strict mode."""
    diagnostics = json.loads(run(["basedpyright", "--pythonpath", sys.executable, "--outputjson", *files]))[
        "generalDiagnostics"
    ]
    return {
        (Path(one["file"]).name, one["range"]["start"]["line"] + 1, one["message"])
        for one in diagnostics
        if one["severity"] == "error" and not BESIDE_THE_POINT.match(one.get("rule", ""))
    }


CHECKERS = {"mypy": mypy_lines, "basedpyright": basedpyright_lines}


@cache
def refused_lines(checker: str) -> dict[tuple[str, int], str]:
    """Return what a checker refuses in all files, by place: one run of it serves both tests."""
    return {(name, line): text for name, line, text in CHECKERS[checker](SOUND + REFUSED)}


@pytest.mark.parametrize("checker", CHECKERS)
def test_sound_programs_are_accepted(checker: str) -> None:
    """A user's correct line must not be underlined."""
    assert {place: text for place, text in refused_lines(checker).items() if place[0] in SOUND} == {}


@pytest.mark.parametrize("checker", CHECKERS)
def test_marked_mistakes_are_refused_and_no_other_line(checker: str) -> None:
    """The mistakes that types can catch are caught in the editor, before anything runs."""
    marked = {
        (name, number)
        for name in REFUSED
        for number, line in enumerate((HERE / name).read_text(encoding="utf-8").splitlines(), 1)
        if MARK in line
    }
    found = {place: text for place, text in refused_lines(checker).items() if place[0] in REFUSED}
    assert len(marked) > 90
    assert marked - set(found) == set(), "accepted though marked"
    assert {place: found[place] for place in set(found) - marked} == {}, "refused though not marked"
