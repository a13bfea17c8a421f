"""Paths on the wire: relative where the reader has its own workdir, refused where they mean nothing (SER-07).

Forms: ``a/b`` is a relative path as it was; ``./a/b`` lies in the workdir, whose place each reader knows
(no path's own text begins with ``./``); anything else is absolute and only good on its kind of system.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePath, PureWindowsPath
from typing import Any

from towline.serialization.misfit import MisfitError
from towline.serialization.shapes import TEXT, Shape, check_text

_WINDOWS_ABSOLUTE = re.compile(r"[A-Za-z]:|\\\\")


class PathShape(Shape):
    """``pathlib.Path``."""

    kinds, classes, name = TEXT, (Path, type(Path())), "Path"

    def lower(self, value: Any, workdir: PurePath | None) -> Any:
        if not isinstance(value, Path):
            raise self.wrong_class(value)
        text = path_text(value, workdir)
        check_text(text)
        return text

    def lift(self, raw: Any, workdir: PurePath | None) -> Any:
        if type(raw) is not str:
            raise self.wrong_kind(raw)
        return Path(path_from(raw, workdir, windows=isinstance(Path(), PureWindowsPath)))


def path_text(path: PurePath, workdir: PurePath | None) -> str:
    """Write a path. Whether it lies in the workdir is a matter of names; case counts as its system has it."""
    if not path.is_absolute():
        return path.as_posix()
    if workdir is not None and ".." not in path.parts and path.is_relative_to(workdir):
        inside = path.relative_to(workdir).as_posix()
        return "./" if inside == "." else f"./{inside}"
    return str(path)


def path_from(text: str, workdir: PurePath | None, *, windows: bool) -> PurePath | str:
    """Read a path as a system of this kind understands it; raises ``MisfitError`` for one of the other kind."""
    if text.startswith("./"):
        return text if workdir is None else workdir / text[2:]
    foreign = text.startswith("/") if windows else _WINDOWS_ABSOLUTE.match(text)
    if foreign:
        kind = "POSIX" if windows else "Windows"
        raise MisfitError(f"is the absolute {kind} path {text!r}, which means nothing on this system")
    return text
