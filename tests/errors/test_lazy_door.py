"""The door of the errors: light, and true."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import towline.errors as errors
from towline.errors.root import TowlineError


def test_every_name_of_the_door_is_an_error_from_the_topic_that_it_names() -> None:
    """A name that is listed and cannot be imported would be found by the user who meets that error."""
    assert set(errors._HOME_OF) == set(errors.__all__)  # type: ignore[attr-defined]
    for name, home in errors._HOME_OF.items():  # type: ignore[attr-defined]
        kind = getattr(errors, name)
        assert issubclass(kind, TowlineError)
        assert kind.__module__ == f"towline.errors.{home}"
    with pytest.raises(AttributeError, match="NoSuchError"):
        errors.NoSuchError  # type: ignore[attr-defined] # noqa: B018


def test_type_checkers_see_the_same_names() -> None:
    """They read the imports under TYPE_CHECKING, which nothing else runs."""
    tree = ast.parse(Path(errors.__file__).read_text(encoding="utf-8"))
    seen = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("towline.")
        for alias in node.names
    }
    assert seen == {name: f"towline.errors.{home}" for name, home in errors._HOME_OF.items()}  # type: ignore[attr-defined]


def test_one_topic_does_not_load_the_others() -> None:
    """Twenty classes of offload errors are no business of a pipeline that never offloads."""
    program = "import sys, towline.errors.declaration; print('towline.errors.offload' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "False\n"
