"""A program is named, and loaded by its name in every process."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from towline.errors.declaration import TargetLoadError
from towline.modules.target import TargetRef, load_target, parse_target, refuse_while_loading, target_of
from towline.testing import TestClock, clause

SOURCE = str(Path(__file__).parents[2] / "src")

PROGRAM = """\
from towline.modules import module

@module
async def build(ctx) -> int:
    return 1

class Program:
    modules = [build]
    def plan(self): ...
    def run_sync(self): ...
    def main(self): ...

pipeline = Program()
"""

Writer = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Iterator[Writer]:
    """Write a file that a test loads; what it changes in the interpreter is undone."""
    modules, path, stdin = set(sys.modules), list(sys.path), sys.stdin

    def writer(name: str, text: str) -> Path:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    yield writer
    sys.path[:], sys.stdin = path, stdin
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def run_python(folder: Path, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a fresh interpreter in a folder."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": SOURCE},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@clause("CLI-01")
@pytest.mark.parametrize(
    ("text", "kind", "where", "attribute"),
    [
        ("release.py", "file", "/srv/ci/release.py", None),
        ("release.py:nightly", "file", "/srv/ci/release.py", "nightly"),
        ("jobs/release.py", "file", "/srv/ci/jobs/release.py", None),
        ("/srv/a:b/release.py", "file", "/srv/a:b/release.py", None),
        ("/srv/a:b/release.py:x", "file", "/srv/a:b/release.py", "x"),
        ("company.release", "package", "company.release", None),
        ("company.release:nightly", "package", "company.release", "nightly"),
        ("release", "package", "release", None),
    ],
)
def test_target_is_split_only_before_an_identifier(text: str, kind: str, where: str, attribute: str | None) -> None:
    """A colon may also belong to the path."""
    target = parse_target(text, folder="/srv/ci")

    assert (target.kind, target.path_or_name, target.attribute) == (kind, where, attribute)
    assert target.root == (str(Path(where).parent) if kind == "file" else "/srv/ci")


@clause("CLI-01")
def test_windows_drive_is_no_separator() -> None:
    """``C:\\ci\\build.py`` has a colon and names no attribute."""
    plain, named = parse_target(r"C:\ci\build.py", folder="/x"), parse_target(r"C:\ci\build.py:nightly", folder="/x")

    assert plain.attribute is None
    assert plain.path_or_name.endswith(r"C:\ci\build.py")
    assert (named.path_or_name, named.attribute) == (plain.path_or_name, "nightly")


@pytest.mark.parametrize("text", ["", "a b", "release.:x", "3.py3", "rel-ease"])
def test_text_that_names_nothing_is_refused(text: str) -> None:
    """Better than an import error about a name that nobody wrote."""
    with pytest.raises(TargetLoadError, match=r"file\.py"):
        parse_target(text, folder="/x")


@clause("MOD-24")
def test_file_is_imported_under_its_stem_so_that_others_meet_the_same_objects(write: Writer) -> None:
    """A second copy of the modules would be other modules."""
    file = write("release_a.py", PROGRAM)
    write("beside_a.py", "import release_a\npipeline = release_a.pipeline\n")

    first = load_target(parse_target(str(file)))
    again = load_target(parse_target(str(file)))
    beside = load_target(parse_target(str(file.with_name("beside_a.py"))))

    assert first is again is beside
    assert sys.path[0] == str(file.parent)


@clause("MOD-24")
@pytest.mark.parametrize("stem", ["json", "sys", "taken_b"])
def test_taken_stem_is_refused_with_both_places(write: Writer, tmp_path: Path, stem: str) -> None:
    """Importing ``json`` would give Python's own, and the target would never be read."""
    file = write(f"mine/{stem}.py", PROGRAM)
    if stem == "taken_b":
        load_target(parse_target(str(write("other/taken_b.py", PROGRAM))))

    with pytest.raises(TargetLoadError) as refused:
        load_target(parse_target(str(file)))

    assert str(file) in str(refused.value)
    assert ("other/taken_b.py" if stem == "taken_b" else "json" if stem == "json" else "built into") in str(
        refused.value
    )
    assert "Rename" in str(refused.value)


@clause("MOD-24")
def test_package_is_loaded_by_its_dotted_name(write: Writer, tmp_path: Path) -> None:
    """The working directory is the root, as with ``python -m``."""
    write("company_c/__init__.py", "")
    write("company_c/jobs.py", PROGRAM)

    program = load_target(parse_target("company_c.jobs", folder=str(tmp_path)))

    assert program is sys.modules["company_c.jobs"].pipeline
    assert target_of(program, "company_c.jobs") == TargetRef(
        kind="package", path_or_name="company_c.jobs", attribute="pipeline", root=str(tmp_path)
    )


@clause("MOD-25")
@pytest.mark.parametrize("how", [["release.py"], ["-m", "release"], ["-m", "company.release"]])
def test_program_that_was_started_knows_how_others_load_it(write: Writer, tmp_path: Path, how: list[str]) -> None:
    """``python release.py`` runs as ``__main__``, and no child can import that."""
    ending = (
        "if __name__ == '__main__':\n    from towline.modules.target import target_of\n    print(target_of(pipeline))\n"
    )
    package = "company" in how[-1]
    write("company/__init__.py", "")
    file = write("company/release.py" if package else "release.py", PROGRAM + ending)

    done = run_python(tmp_path, *how)

    assert done.stdout.strip() == (f"{how[-1]}:pipeline" if package else f"{file}:pipeline"), done.stderr


@clause("MOD-27")
def test_program_that_no_file_holds_has_no_target(tmp_path: Path) -> None:
    """A worker could not load it; the planner says so before anything runs."""
    code = PROGRAM + "\nfrom towline.modules.target import target_of\nprint(target_of(pipeline), target_of(object()))\n"

    assert run_python(tmp_path, "-c", code).stdout == "None None\n"
    assert run_python(tmp_path, "-", stdin=code).stdout == "None None\n"


@clause("MOD-26")
def test_run_that_starts_while_a_target_is_loaded_is_refused(write: Writer) -> None:
    """Each of four workers would start a run of its own."""
    file = write(
        "unguarded_d.py",
        PROGRAM + "from towline.modules.target import refuse_while_loading\nrefuse_while_loading('main()')\n",
    )

    with pytest.raises(TargetLoadError, match=r"main\(\).*__name__ == \"__main__\""):
        load_target(parse_target(str(file)))
    refuse_while_loading("main()")


@clause("MOD-28")
def test_import_that_raises_is_reported_with_the_users_own_frames(write: Writer) -> None:
    """The frames of the import machinery are twenty lines about nothing."""
    file = write("broken_e.py", "def read():\n    raise ValueError('no such setting')\n\nread()\n")

    with pytest.raises(TargetLoadError, match="ValueError: no such setting") as refused:
        load_target(parse_target(str(file)))

    text = str(refused.value)
    assert text.count('File "') == 2
    assert "line 2, in read" in text
    assert "importlib" not in text
    assert refused.value.exit_code == 2
    assert "broken_e" not in sys.modules


@clause("MOD-28")
@pytest.mark.parametrize("text", ["import sys\nsys.exit(3)\n", "def (:\n"])
def test_import_that_exits_or_does_not_parse_is_reported_too(write: Writer, text: str) -> None:
    """A worker that silently left with the program's exit code would look like a lost worker."""
    file = write("leaving_f.py", text)

    with pytest.raises(TargetLoadError, match=r"SystemExit|SyntaxError"):
        load_target(parse_target(str(file)))


@clause("MOD-28")
def test_slow_import_is_warned_about(write: Writer, caplog: pytest.LogCaptureFixture) -> None:
    """Every child pays it again."""
    file = write("slow_g.py", PROGRAM)
    clock = TestClock()
    write("slow_h.py", "import slowness_h\n" + PROGRAM)
    write("slowness_h.py", "")

    class Slow(TestClock):
        def monotonic(self) -> float:
            self.advance(11)
            return super().monotonic()

    load_target(parse_target(str(file)), clock=clock)
    assert caplog.text == ""
    load_target(parse_target(str(file.with_name("slow_h.py"))), clock=Slow())

    assert "took 11 s" in caplog.text


@clause("MOD-28")
def test_import_that_reads_stdin_is_warned_about(write: Writer, caplog: pytest.LogCaptureFixture) -> None:
    """A child has no terminal: its import would end at once, or wait for ever."""
    sys.stdin = io.StringIO("yes\n")
    file = write("asking_i.py", "answer = input()\n" + PROGRAM)

    load_target(parse_target(str(file)))

    assert "reads stdin" in caplog.text
    assert sys.modules["asking_i"].answer == "yes"
    assert isinstance(sys.stdin, io.StringIO)


@clause("CLI-01")
def test_the_only_pipeline_is_found_whatever_its_name(write: Writer) -> None:
    """Most files hold one."""
    one = write("one_j.py", PROGRAM.replace("pipeline =", "release ="))
    two = write("two_k.py", PROGRAM.replace("pipeline =", "nightly = Program()\nrelease ="))
    none = write("none_l.py", "x = 1\n")

    assert load_target(parse_target(str(one))) is sys.modules["one_j"].release
    with pytest.raises(TargetLoadError, match="nightly, release"):
        load_target(parse_target(str(two)))
    assert load_target(parse_target(f"{two}:release")) is sys.modules["two_k"].release
    with pytest.raises(TargetLoadError, match="no pipeline at all"):
        load_target(parse_target(str(none)))
    with pytest.raises(TargetLoadError, match=r"'relese'.*nightly, release"):
        load_target(parse_target(f"{two}:relese"))


def test_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """The commonest slip of all."""
    with pytest.raises(TargetLoadError, match="no such file"):
        load_target(parse_target("nowhere.py", folder=str(tmp_path)))
