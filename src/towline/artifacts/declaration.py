"""What an artifact may be called and which files its pattern names (ART-01, ART-02). Pure: texts only."""

from __future__ import annotations

import re

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}\Z")
_DRIVE = re.compile(r"[A-Za-z]:")
_WILD = re.compile(r"[*?\[]")


def check_name(name: str) -> None:
    """Refuse an artifact name that is no ``[a-z0-9][a-z0-9._-]{0,63}`` (ART-01).

    Raises:
        ValueError: With the name and the rule; the caller adds module and setting.
    """
    if not isinstance(name, str) or not _NAME.match(name):
        raise ValueError(
            f"{name!r} is no artifact name: use 1 to 64 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit"
        )


def check_pattern(pattern: str) -> None:
    """Refuse a pattern that is not relative to the workdir, or not spelled with ``/`` (ART-01).

    A pattern is a file, a folder, or a glob: ``*``, ``?`` and ``[...]`` within one name, ``**`` for any
    number of folders.

    Raises:
        ValueError: With the pattern and the rule that it breaks.
    """
    _check_relative(pattern, "pattern")
    for part in pattern.split("/"):
        if "**" in part and part != "**":
            raise ValueError(
                f"pattern {pattern!r}: '**' stands for whole folders, so it is a name of its own: 'a/**/b'"
            )


def check_into(folder: str) -> None:
    """Refuse a target folder that is not inside the workdir (ART-02).

    Raises:
        ValueError: With the folder and the rule that it breaks.
    """
    _check_relative(folder, "folder")


def is_literal(pattern: str) -> bool:
    """Say whether the pattern names one file or folder, without wildcards."""
    return _WILD.search(pattern) is None


def fixed_part(pattern: str) -> str:
    """Return the folder above the first wildcard, ``.`` if there is none: entries of a tree are relative to it (ART-06)."""
    fixed: list[str] = []
    for part in pattern_parts(pattern):
        if _WILD.search(part):
            break
        fixed.append(part)
    return "/".join(fixed) or "."


def pattern_parts(pattern: str) -> list[str]:
    """Split a pattern into its names; ``.`` and doubled slashes mean nothing."""
    return [part for part in pattern.split("/") if part not in ("", ".")]


def part_matcher(part: str) -> re.Pattern[str]:
    """Compile one name of a pattern; ``*`` also takes names with a leading dot. Case counts on every system."""
    import fnmatch

    return re.compile(fnmatch.translate(part))


def _check_relative(path: str, what: str) -> None:
    if not isinstance(path, str) or not path:
        raise ValueError(f"{what} {path!r}: give the text of a path relative to the workdir")
    if "\\" in path:
        raise ValueError(f"{what} {path!r}: write '/' between names, on every system")
    if path.startswith("/") or _DRIVE.match(path):
        raise ValueError(f"{what} {path!r} is absolute: it has to be relative to the workdir")
    if ".." in path.split("/"):
        raise ValueError(f"{what} {path!r} leaves the workdir with '..'")
    if "\0" in path:
        raise ValueError(f"{what} {path!r} holds a NUL character")
