"""What may be given to a program, and which program is meant: pure rules (CMD-01, CMD-02, CMD-05)."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from towline.errors.commands import UnsafeArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

_TOWLINE_SECRET: Final = re.compile(r"TOWLINE_.*(TOKEN|PASSWORD)", re.IGNORECASE)
_STORE_VARIABLES: Final = frozenset(
    f"TOWLINE_{name}" for name in ("ARTIFACTS", "CACHE", "CONTROL", "COORDINATOR", "ENGINE", "HUB", "STATE")
)
_BATCH: Final = (".bat", ".cmd")
_UNSAFE_IN_BATCH: Final = frozenset('"%&|<>^!\r\n')


def arguments_of(argv: Sequence[object]) -> tuple[str, ...]:
    """Return the program and its arguments as texts.

    Raises:
        TypeError: One is neither str nor Path.
        ValueError: There is none.
    """
    if not argv:
        raise ValueError("a command needs a program")
    arguments: list[str] = []
    for position, argument in enumerate(argv):
        path = os.fspath(argument) if isinstance(argument, os.PathLike) else argument
        if not isinstance(path, str):
            raise TypeError(f"argument {position} is {type(argument).__name__}; a command takes str or Path")
        arguments.append(path)
    return tuple(arguments)


def command_environment(node: Mapping[str, str], changes: Mapping[str, str | None] | None) -> dict[str, str]:
    """Return the environment of a command: the node's, without Towline's own tokens and store URLs, then the changes.

    A change to ``None`` removes a variable. What the caller names goes through: that is a decision.
    """
    environment = {name: value for name, value in node.items() if not is_towline_secret(name, value)}
    for name, change in (changes or {}).items():
        if change is None:
            environment.pop(name, None)
        else:
            environment[name] = change
    return environment


def is_towline_secret(name: str, value: str) -> bool:
    """Say whether a variable is a token, password or store URL of Towline itself (CMD-02)."""
    upper = name.upper()
    if not upper.startswith("TOWLINE_"):
        return False
    return bool(_TOWLINE_SECRET.match(upper)) or upper in _STORE_VARIABLES or "://" in value


def windows_program(program: str, path: str, pathext: str, is_file: Callable[[str], bool]) -> str | None:
    """Find a program as Windows does: in the folders of PATH, with each ending of PATHEXT (CMD-05).

    A name with a folder is not searched for; one with an ending of PATHEXT is taken as it is.
    Returns ``None`` if there is none.
    """
    endings = [ending for ending in pathext.split(";") if ending]
    has_ending = any(program.lower().endswith(ending.lower()) for ending in endings)
    names = [program] if has_ending else [program + ending for ending in endings]
    if "\\" in program or "/" in program or ":" in program:
        folders: Iterable[str] = ("",)
    else:
        folders = (folder.rstrip("\\/") + "\\" for folder in path.split(";") if folder)
    for folder in folders:
        for name in names:
            if is_file(folder + name):
                return folder + name
    return None


def refuse_unsafe_arguments(program: str, arguments: Sequence[str]) -> None:
    """Refuse arguments that cmd.exe would interpret, if the program is a batch file (CMD-05).

    Raises:
        UnsafeArgumentError: Names the first such argument, counted from 1, and the character.
    """
    if not program.lower().endswith(_BATCH):
        return
    for position, argument in enumerate(arguments, 1):
        for character in argument:
            if character in _UNSAFE_IN_BATCH:
                raise UnsafeArgumentError(program, position, character)
