"""The programs and commands in a documentation page, and what running them must show.

- ```` ```python title="words.py" ````: written to that file, for the commands that follow on the page.
- ```` ```python ````: run by itself.
- ```` ```console ````: each ``$`` line is run by a shell in the page's folder. ``# exit 3`` at its end is the
  expected exit code (0 without one). Lines below it must appear in what it prints, in this order; a line
  ``...`` stands for anything, and within a line ``…`` does.

Blocks in other languages are not run: ``sh``, ``text``, and ``py`` for a fragment of a program.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

_FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TITLE = re.compile(r'title="([^"]+)"')
_EXIT = re.compile(r"\s+# exit (\d+)$")


@dataclass
class File:
    """A program that later commands use."""

    name: str
    text: str


@dataclass
class Program:
    """A program that is run by itself."""

    text: str


@dataclass
class Command:
    """A line for the shell, the exit code and the output lines it must give."""

    line: str
    exit_code: int = 0
    shows: list[str] = field(default_factory=list)


def parse(page: Path) -> list[File | Program | Command]:
    """Return what is to be written and run, in the order of the page."""
    found: list[File | Program | Command] = []
    for language, options, body in _FENCE.findall(page.read_text(encoding="utf-8")):
        title = _TITLE.search(options)
        if language == "python" and title:
            found.append(File(title[1], body))
        elif language == "python":
            found.append(Program(body))
        elif language == "console":
            found += _commands(body)
    return found


def _commands(body: str) -> list[Command]:
    commands: list[Command] = []
    for line in body.splitlines():
        if line.startswith("$ "):
            code = _EXIT.search(line)
            commands.append(Command(_EXIT.sub("", line[2:]), int(code[1]) if code else 0))
        elif line.strip() and line.strip() != "..." and commands:
            commands[-1].shows.append(line)
    return commands


def missing_line(shows: list[str], output: str) -> str | None:
    """Return the first expected line that the output lacks, looking in order; ``…`` stands for any text."""
    rest = iter(output.splitlines())
    for expected in shows:
        pattern = re.compile(".*".join(re.escape(part) for part in expected.strip().split("…")))
        if not any(pattern.search(line) for line in rest):
            return expected
    return None
