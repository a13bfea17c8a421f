"""Conditions are data: shown in the plan, evaluated on any surroundings."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from towline import (
    Condition,
    DeclarationError,
    changed,
    command_exists,
    env,
    file_exists,
    on_platform,
    param,
)
from towline.testing import clause


@dataclass
class Release:
    channel: str = "stable"
    publish: bool = True


@dataclass
class World:
    """Surroundings that a test writes down."""

    system: str = "linux"
    params: object = None
    variables: dict[str, str] = field(default_factory=dict)
    files: Collection[str] = ()
    commands: Collection[str] = ()
    changes: dict[str, Collection[str]] = field(default_factory=dict)

    def variable(self, name: str) -> str | None:
        return self.variables.get(name)

    def has_file(self, path: str) -> bool:
        return path in self.files

    def has_command(self, program: str) -> bool:
        return program in self.commands

    def changed_paths(self, since: str) -> Collection[str]:
        return self.changes[since]


CASES: list[tuple[Condition, World, bool]] = [
    (env("CI"), World(variables={"CI": ""}), True),
    (env("CI"), World(), False),
    (env("CI", "true"), World(variables={"CI": "true"}), True),
    (env("CI", "true"), World(variables={"CI": "1"}), False),
    (on_platform("linux", "macos"), World(), True),
    (on_platform("windows"), World(), False),
    (param("publish"), World(params=Release()), True),
    (param("channel", "nightly"), World(params=Release()), False),
    (file_exists("a", Path("b")), World(files=["a", "b"]), True),
    (file_exists("a", "b"), World(files=["a"]), False),
    (command_exists("uv", "git"), World(commands=["uv", "git"]), True),
    (command_exists("uv", "git"), World(commands=["uv"]), False),
    (changed("docs/**"), World(changes={"HEAD": ["docs/a/b.md"]}), True),
    (changed("docs/*.md"), World(changes={"HEAD": ["docs/a/b.md"]}), False),
    (changed("**/b.md"), World(changes={"HEAD": ["b.md"]}), True),
    (changed("docs/**/b.*"), World(changes={"HEAD": ["docs/x/y/b.md"]}), True),
    (changed("src/*", "docs/*"), World(changes={"HEAD": ["docs/a"]}), True),
    (changed("docs"), World(changes={"HEAD": ["docs/a"]}), False),
    (changed("**", since="origin/main"), World(changes={"origin/main": []}), False),
]


@clause("RUN-13")
@pytest.mark.parametrize(("condition", "world", "expected"), CASES)
def test_condition_is_evaluated_on_what_it_is_given(condition: Condition, world: World, expected: bool) -> None:
    """The planner asks the same question as the node, and gets the same answer."""
    assert condition.holds(world) is expected


@clause("RUN-12")
@pytest.mark.parametrize(
    ("condition", "words"),
    [
        (env("CI"), "env('CI')"),
        (env("CI", "true"), "env('CI', 'true')"),
        (param("publish"), "param('publish')"),
        (param("channel", "x"), "param('channel', 'x')"),
        (on_platform("linux", "macos"), "on_platform('linux', 'macos')"),
        (changed("docs/**"), "changed('docs/**')"),
        (changed("docs/**", since="v1"), "changed('docs/**', since='v1')"),
        (file_exists(Path("a")), "file_exists('a')"),
    ],
)
def test_condition_reads_as_it_was_written(condition: Condition, words: str) -> None:
    """A skipped task says why in the words of who wrote the condition."""
    assert condition.words == repr(condition) == words


@clause("RUN-14")
def test_what_cannot_be_told_is_an_error() -> None:
    """A misspelt parameter that counted as false would skip a release."""
    with pytest.raises(DeclarationError, match=r"'publsh'.*Did you mean 'publish'\?"):
        param("publsh").holds(World(params=Release()))
    with pytest.raises(DeclarationError, match="it has none"):
        param("publish").holds(World())
    with pytest.raises(KeyError):
        changed("**").holds(World())


@pytest.mark.parametrize(
    "make",
    [
        lambda: env(""),
        lambda: env("CI", 1),  # type: ignore[arg-type]
        lambda: on_platform(),
        lambda: on_platform("linus"),  # type: ignore[arg-type]
        lambda: param(3),  # type: ignore[arg-type]
        lambda: changed(),
        lambda: changed("a", since="--output=x"),
        lambda: changed("a", since=""),
        lambda: file_exists(),
        lambda: file_exists(3),  # type: ignore[arg-type]
        lambda: command_exists(""),
        lambda: bool(env("CI")),
    ],
)
def test_condition_that_says_nothing_is_refused(make: Any) -> None:
    """Also ``env("CI") and env("X")``, which would be ``env("X")`` alone."""
    with pytest.raises(DeclarationError):
        make()
