"""The names that users may import, as a list that changes only on purpose."""

from __future__ import annotations

import ast
import inspect
import pydoc
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import towline
import towline.offload
import towline.testing
from structure.repository import LIBRARY, tree_of

GOLDEN = Path(__file__).with_name("public_names.txt")


def test_public_names_are_those_of_the_golden_list() -> None:
    """A name that disappears breaks a user's program; a name that appears is a promise to keep."""
    assert sorted(towline.__all__) == GOLDEN.read_text(encoding="utf-8").split()


def test_every_public_name_can_be_imported() -> None:
    """Names are imported on use, so a wrong home would be found by the first user who asks."""
    missing = [name for name in towline.__all__ if not hasattr(towline, name)]

    assert missing == []
    assert set(towline.__all__) <= set(dir(towline))


def test_type_checkers_are_told_the_same_homes() -> None:
    """What a checker believes about a name and what is imported must not drift apart."""
    [checked] = [
        node
        for node in tree_of(LIBRARY / "__init__.py").body
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    ]
    told = {
        alias.name: node.module for node in checked.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }

    assert told == {name: f"towline.{home}" for home, names in towline._HOMES.items() for name in names.split()}
    assert sorted(told) == sorted(towline.__all__)


def test_importing_the_package_loads_nothing_else() -> None:
    """A worker, a child and ``towline --help`` all begin with it."""
    code = "import sys, towline; print([name for name in sys.modules if name.startswith(('towline.', 'msgspec'))])"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)

    assert done.stdout.strip() == "[]"


PUBLIC = [(door, name) for door in (towline, towline.testing, towline.offload) for name in door.__all__]


@pytest.mark.parametrize(("door", "name"), PUBLIC, ids=lambda one: getattr(one, "__name__", one))
def test_help_tells_of_every_public_name(door: object, name: str) -> None:
    """Who asks the interpreter what an option means gets its text, not a traceback."""
    assert pydoc.render_doc(getattr(door, name)).count("\n") > 2


RECORDS = [name for _, name in PUBLIC if isinstance(getattr(towline, name, None), type(msgspec.Struct))]


@pytest.mark.parametrize("name", RECORDS)
def test_annotations_of_records_can_be_evaluated(name: str) -> None:
    """Editors, notebooks and documentation tools ask for the fields of a record with their types."""
    assert inspect.signature(getattr(towline, name), eval_str=True).parameters
