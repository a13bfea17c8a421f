"""Conditions that are known, and shown, when the plan is built (RUN-12, RUN-13). Pure: they ask ``Surroundings``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, final

import msgspec

from towline.errors.declaration import DeclarationError
from towline.identity import suggestion
from towline.modules.capabilities import SYSTEMS

if TYPE_CHECKING:
    from collections.abc import Collection
    from os import PathLike

    from towline.modules.facts import TaskFacts


class Surroundings(Protocol):
    """What a condition may ask of the node that evaluates it."""

    @property
    def system(self) -> str:
        """``linux``, ``macos`` or ``windows``."""
        ...

    @property
    def params(self) -> object:
        """The parameters of the run, ``None`` without any."""
        ...

    def variable(self, name: str) -> str | None:
        """The environment variable, ``None`` when it is not set."""
        ...

    def has_file(self, path: str) -> bool:
        """Whether a file or folder is there, relative to the program's root."""
        ...

    def has_command(self, program: str) -> bool:
        """Whether a program is found on the search path."""
        ...

    def changed_paths(self, since: str) -> Collection[str]:
        """Paths, with ``/``, that differ from a git revision; raises when that cannot be told."""
        ...


@final
class Condition(msgspec.Struct, frozen=True):
    """A condition that is known, and shown, when the plan is built."""

    kind: Literal["env", "on_platform", "param", "changed", "file_exists", "command_exists"]
    names: tuple[str, ...]
    value: object = None

    @property
    def words(self) -> str:
        """The condition as it was written, for people: ``env('CI')``."""
        shown = [repr(name) for name in self.names]
        if self.kind == "changed" and self.value != DEFAULT_SINCE:
            shown.append(f"since={self.value!r}")
        elif (self.kind == "env" and self.value is not None) or (self.kind == "param" and self.value is not True):
            shown.append(repr(self.value))
        return f"{self.kind}({', '.join(shown)})"

    def holds(self, surroundings: Surroundings) -> bool:
        """Evaluate the condition here and now.

        Raises:
            Exception: What cannot be told is an error, never false: an unknown parameter, no git repository.
        """
        match self.kind:
            case "env":
                found = surroundings.variable(self.names[0])
                return found is not None if self.value is None else found == self.value
            case "on_platform":
                return surroundings.system in self.names
            case "param":
                return _param(surroundings.params, self.names[0]) == self.value
            case "changed":
                paths = surroundings.changed_paths(str(self.value))
                return any(_matches(path, pattern) for path in paths for pattern in self.names)
            case "file_exists":
                return all(surroundings.has_file(path) for path in self.names)
            case "command_exists":
                return all(surroundings.has_command(program) for program in self.names)

    def __bool__(self) -> bool:
        raise DeclarationError(
            "condition", "and/or/not", self.words, "list conditions: run_if=[...] needs all, skip_if none"
        )

    def __repr__(self) -> str:
        return self.words


ConditionLike: TypeAlias = Condition | Callable[["TaskFacts"], bool]
"""A condition, or a plain function of the facts, asked on the node when the task is due."""

DEFAULT_SINCE = "HEAD"
"""What ``changed`` compares with: the last commit, so that only what is not committed yet counts."""


def env(name: str, value: str | None = None, /) -> Condition:
    """Hold when the environment variable is set, or has exactly this value."""
    _texts("env", (name,))
    if value is not None and not isinstance(value, str):
        raise DeclarationError("env", name, value, "the text that the variable must have, or nothing")
    return Condition("env", (name,), value)


def on_platform(*systems: Literal["linux", "macos", "windows"]) -> Condition:
    """Hold on one of these operating systems."""
    _texts("on_platform", systems)
    for system in systems:
        if system not in SYSTEMS:
            advice = suggestion(system, SYSTEMS)
            raise DeclarationError("on_platform", "system", system, f"'linux', 'macos' or 'windows'{advice}")
    return Condition("on_platform", tuple(systems))


def param(name: str, value: object = True, /) -> Condition:
    """Hold when the parameter of the run has this value. An unknown parameter is an error when the plan is built."""
    _texts("param", (name,))
    return Condition("param", (name,), value)


def changed(*patterns: str, since: str = DEFAULT_SINCE) -> Condition:
    """Hold when a path that matches a pattern differs from a git revision, or is new and not ignored.

    patterns: relative to the program's root, ``/`` on every system, ``**`` for any number of folders.
    since: a revision, for example ``"origin/main"``.
    """
    _texts("changed", patterns)
    if not isinstance(since, str) or not since or since.startswith("-"):
        raise DeclarationError("changed", "since", since, "a git revision, for example 'origin/main'")
    return Condition("changed", patterns, since)


def file_exists(*paths: str | PathLike[str]) -> Condition:
    """Hold when every path is there, relative to the program's root."""
    from os import fspath

    texts = tuple(fspath(path) if hasattr(path, "__fspath__") or isinstance(path, str) else path for path in paths)
    _texts("file_exists", texts)
    return Condition("file_exists", texts)


def command_exists(*programs: str) -> Condition:
    """Hold when every program is found on the search path."""
    _texts("command_exists", programs)
    return Condition("command_exists", programs)


def _texts(condition: str, values: tuple[object, ...]) -> None:
    if not values:
        raise DeclarationError(condition, "arguments", (), "at least one")
    for value in values:
        if not isinstance(value, str) or not value:
            raise DeclarationError(condition, "argument", value, "a text that is not empty")


def _param(params: object, name: str) -> object:
    if params is not None and hasattr(params, name):
        return getattr(params, name)
    known = getattr(type(params), "__annotations__", {})
    advice = suggestion(name, known)
    raise DeclarationError(
        "param", "name", name, f"a field of the pipeline's params: {', '.join(known) or 'it has none'}{advice}"
    )


def _matches(path: str, pattern: str) -> bool:
    """Match a path with ``/`` part by part; ``**`` stands for any number of folders."""
    from fnmatch import fnmatchcase

    places = {0}  # how many parts of the path the pattern so far may have used up
    parts, wanted = path.split("/"), [part for part in pattern.split("/") if part not in ("", ".")]
    for part in wanted:
        if part == "**":
            places = set(range(min(places), len(parts) + 1)) if places else places
        else:
            places = {place + 1 for place in places if place < len(parts) and fnmatchcase(parts[place], part)}
    return len(parts) in places
