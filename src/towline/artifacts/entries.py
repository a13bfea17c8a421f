"""Which entries an archive may hold; one rule for those who pack and those who unpack (ART-10). Pure: names only."""

from __future__ import annotations

import re

ENTRIES_LIMIT = 100_000
SIZE_LIMIT_BYTES = 10 * 1024**3
PATH_LIMIT_BYTES = 1_024

_DRIVE = re.compile(r"[A-Za-z]:")
_DEVICE = re.compile(r"(?i)(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]|conin\$|conout\$)\s*([.:].*)?\Z")


def path_problem(path: str, *, windows: bool) -> str | None:
    """Say what is wrong with the path of an entry, or nothing.

    Args:
        path: As it stands in the archive: relative, ``/`` between names.
        windows: Whether it is to be written on Windows, where more names mean something else.
    """
    if "\0" in path:
        return "holds a NUL character"
    if "\\" in path:
        return "holds a backslash"
    if path.startswith("/") or _DRIVE.match(path):
        return "is absolute"
    if len(path.encode("utf-8", "surrogateescape")) > PATH_LIMIT_BYTES:
        return f"has a path of more than {PATH_LIMIT_BYTES:,} bytes"
    for part in path.split("/"):
        if part == "..":
            return "leaves the tree with '..'"
        if part in ("", "."):
            return "has an empty name in its path"
        if windows and (_DEVICE.match(part) or part[-1] in ". " or ":" in part):
            return f"has the name {part!r}, which Windows takes for something else"
    return None


def link_problem(path: str, target: str) -> str | None:
    """Say what is wrong with a symbolic link, or nothing.

    A target may go up, never above the tree, and then down; not up again after a name: that name could be a
    link itself, and then ``..`` is not what it seems.
    """
    if not target or "\0" in target or "\\" in target:
        return f"is a link to {target!r}"
    if target.startswith("/") or _DRIVE.match(target):
        return f"is a link that leaves the tree, to {target!r}"
    ups, went_down = 0, False
    for part in target.split("/"):
        if part == "..":
            if went_down:
                return f"is a link that goes up after a name, to {target!r}"
            ups += 1
        elif part not in ("", "."):
            went_down = True
    if ups > path.count("/"):
        return f"is a link that leaves the tree, to {target!r}"
    return None
