"""The version of a module's code is a digest of its own text, and of nothing else."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from towline import Context, Module, module
from towline.modules import spec_of
from towline.modules.versions import code_version, source_text
from towline.testing import clause

HEADER = "from towline import Context, Module, SyncContext, module\n"
Load = Callable[..., dict[str, Any]]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Write a program and run its text, as an import would."""

    def loader(text: str, name: str = "program.py") -> dict[str, Any]:
        file = tmp_path / name
        file.write_bytes(text.encode())
        linecache.checkcache(str(file))
        names: dict[str, Any] = {"__name__": "program", "__file__": str(file)}
        exec(compile(file.read_bytes(), str(file), "exec"), names)
        return names

    return loader


def version_in(names: dict[str, Any], name: str = "build") -> str:
    return code_version(spec_of(names[name]))


BODY = "@module(retries=1)\nasync def build(ctx):\n    return 1\n"


@clause("MOD-29")
def test_declared_version_wins() -> None:
    """Who says a version takes the responsibility for it."""

    @module(version="7")
    async def build(ctx: Context) -> int:
        return 1

    assert code_version(spec_of(build)) == "7"


@clause("MOD-29")
def test_version_is_the_text_of_the_module_with_its_decorators() -> None:
    """What runs is the whole definition; a changed timeout in the decorator is a change of it too."""

    @module(
        timeout=3,
    )
    async def build(ctx: Context) -> int:
        return 1

    class Publish(
        Module[int],
        retries=2,
    ):
        region: str = "eu"

        async def run(self, ctx: Context) -> int:
            return 1

    assert source_text(spec_of(build)) == (
        "@module(\n    timeout=3,\n)\nasync def build(ctx: Context) -> int:\n    return 1\n"
    )
    text = source_text(spec_of(Publish("us")))
    assert text is not None
    assert text.startswith("class Publish(\n    Module[int],\n    retries=2,\n):\n    region")
    assert text.endswith("return 1\n")


@clause("MOD-29")
def test_only_the_own_text_counts(load: Load) -> None:
    """Work elsewhere in the file must not run a module again."""
    before = version_in(load(HEADER + BODY))

    assert version_in(load(HEADER + "# moved\nx = 1\n\n" + BODY + "\ny = 2\n")) == before
    assert version_in(load(HEADER + BODY.replace("return 1", "return 2"))) != before
    assert version_in(load(HEADER + BODY.replace("retries=1", "retries=2"))) != before


@clause("MOD-29")
def test_indentation_and_line_ends_do_not_count(load: Load) -> None:
    """A checkout on Windows is the same program."""
    before = version_in(load(HEADER + BODY))
    indented = "if True:\n" + "".join(f"    {line}\n" for line in BODY.splitlines())

    assert version_in(load(HEADER + indented)) == before
    assert version_in(load((HEADER + BODY).replace("\n", "\r\n"))) == before


@clause("MOD-29")
def test_code_without_a_file_has_no_version() -> None:
    """A REPL; the planner asks for ``version=`` where one is needed."""
    names: dict[str, Any] = {}
    exec(HEADER + BODY, names)

    assert version_in(names) == ""


def test_each_file_is_parsed_once(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand modules of one file are ten thousand look-ups, not ten thousand readings."""
    import ast

    names = load(HEADER + "".join(BODY.replace("build", f"build{number}") for number in range(20)), "many.py")
    parsed: list[str] = []
    parse = ast.parse
    monkeypatch.setattr(ast, "parse", lambda text, *args, **kwargs: parsed.append("") or parse(text, *args, **kwargs))

    versions = {version_in(names, f"build{number}") for number in range(20)}

    assert len(versions) == 20
    assert len(parsed) == 1
