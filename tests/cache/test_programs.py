"""Cached pipelines as users run them: edited between runs, edited while they run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import towline
from towline.testing import clause

PROGRAM = '''
from towline import Cache, Context, Pipeline, module, result_of
from helper import double

FACTOR = 2

@module(cache=Cache(inputs=["in.txt"]))
async def read(ctx: Context) -> str:
    """Read the input."""
    text = open("in.txt").read()
    with open("ran.txt", "a") as log:
        log.write("read ")
    EDIT
    return text

@module(cache=True)
async def count(ctx: Context, text: str = result_of(read)) -> int:
    with open("ran.txt", "a") as log:
        log.write("count ")
    length = len(text)
    return double(length) * FACTOR

@module
async def show(ctx: Context, text: str = result_of(read), number: int = result_of(count)) -> None:
    with open("shown.txt", "w") as out:
        out.write(f"{text} {number}")

pipeline = Pipeline("cached", [show], resume="never")

if __name__ == "__main__":
    pipeline.main()
'''


class Checkout:
    """A folder with a program; each run is a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write("pipe.py", PROGRAM.replace("EDIT", "pass"))
        self.write("helper.py", "def double(n: int) -> int:\n    return 2 * n\n")
        self.write("in.txt", "one")

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def edit(self, name: str, old: str, new: str) -> None:
        text = (self.folder / name).read_text()
        assert old in text
        self.write(name, text.replace(old, new))

    def run(self) -> str:
        """Run the program; returns the bodies of cached tasks that ran, and what was shown."""
        self.write("ran.txt", "")
        source = str(Path(towline.__file__).parent.parent)
        ended = subprocess.run(
            [sys.executable, "pipe.py"],
            cwd=self.folder,
            env=os.environ | {"PYTHONPATH": source, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        self.output = ended.stdout + ended.stderr
        assert ended.returncode == 0, self.output
        return f"{(self.folder / 'ran.txt').read_text()}| {(self.folder / 'shown.txt').read_text()}"


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


@clause("CACHE-03")
def test_layout_never_misses_and_code_always_does(checkout: Checkout) -> None:
    """Case R3: a comment costs nothing; a constant, a name or a helper in another file is never missed."""
    assert checkout.run() == "read count | one 12"
    checkout.edit("pipe.py", '"""Read the input."""', '"""Read."""  # reformatted')
    assert checkout.run() == "| one 12"
    checkout.edit("pipe.py", "FACTOR = 2", "FACTOR = 3")
    assert checkout.run() == "read count | one 18"
    checkout.edit("helper.py", "2 * n", "4 * n")
    assert checkout.run() == "read count | one 36"
    checkout.edit("pipe.py", "length", "size")
    assert checkout.run() == "read count | one 36"


@clause("CACHE-04")
def test_a_source_that_is_edited_while_it_is_read_is_not_served_later(checkout: Checkout) -> None:
    """Case R5: the mixed result must never be found under the digest of the repaired file."""
    checkout.edit("pipe.py", "pass", 'open("in.txt", "w").write("two")')

    first = checkout.run()
    assert "file in.txt changed while the task ran" in checkout.output
    second = checkout.run()

    assert first.endswith("| one 12")
    assert second == "read count | two 12"


@clause("CACHE-04")
def test_code_that_is_loaded_only_by_a_body_is_not_forgotten(checkout: Checkout) -> None:
    """An import inside a function comes after the code was digested: a later change of it would go unseen."""
    checkout.write("late.py", "VALUE = 1\n")
    checkout.edit("pipe.py", "pass", "import late; text += str(late.VALUE)")

    assert checkout.run() == "read count | one1 16"
    assert "late.py was loaded while the task ran" in checkout.output
    checkout.write("late.py", "VALUE = 22\n")

    assert checkout.run().endswith("| one22 20")
