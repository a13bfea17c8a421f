"""Every program and command in the documentation is run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from structure.repository import ROOT
from structure.snippets import Command, File, Program, missing_line, parse

PAGES = [ROOT / "README.md", *sorted(path for path in (ROOT / "docs").rglob("*.md") if "spec" not in path.parts)]
WITH_SNIPPETS = [page for page in PAGES if parse(page)]


def run(argv: list[str] | str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, with this environment's programs first on the path and nothing of Towline set."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("TOWLINE_")}
    env |= {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1"}
    return subprocess.run(
        argv,
        cwd=folder,
        env=env,
        shell=isinstance(argv, str),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.parametrize("page", WITH_SNIPPETS, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_snippets_run_and_show_what_the_page_says(page: Path, tmp_path: Path) -> None:
    """A reader types what stands here; what it says must happen."""
    for step in parse(page):
        match step:
            case File(name, text):
                (tmp_path / name).write_text(text, encoding="utf-8")
            case Program(text):
                done = run([sys.executable, "-c", text], tmp_path)
                assert done.returncode == 0, f"{text}\n{done.stdout}"
            case Command(line, exit_code, shows):
                done = run(line, tmp_path)
                assert done.returncode == exit_code, f"$ {line}\n{done.stdout}"
                missing = missing_line(shows, done.stdout)
                assert missing is None, f"$ {line}\ndoes not print {missing!r}, but:\n{done.stdout}"


def test_readme_has_both_commands() -> None:
    """Two commands are all that a stranger must type."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "make demo" in text
    assert "make test" in text


def test_links_between_pages_lead_somewhere() -> None:
    """A reader who follows a link finds a page."""
    pages = [*PAGES, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "examples").rglob("README.md"))]
    broken = [
        f"{page.relative_to(ROOT)} -> {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert not broken


def test_output_check_notices_a_line_that_is_missing_or_out_of_order() -> None:
    """A check that accepts anything would keep the docs wrong."""
    output = "one 1\ntwo 2\nthree\n"
    assert missing_line(["one …", "three"], output) is None
    assert missing_line(["three", "one …"], output) == "one …"
    assert missing_line(["four"], output) == "four"
