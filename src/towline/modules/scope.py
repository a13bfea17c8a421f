"""Where a declaration stands, and the names that it can see."""

# ruff: noqa: TC004 - these records are never decoded, so their annotations need no imports at start-up.

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import msgspec

from towline.modules.spec import SourceRef

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import CodeType, FrameType

_CLASS_MAKERS = ("abc", "typing")
"""Modules of the standard library whose frames stand between a class statement and ``__init_subclass__``."""


class Scope(msgspec.Struct, frozen=True, eq=False):
    """The names in which the annotations of one declaration mean something.

    ``local_names`` are those of the function around the declaration, as they are when they are looked at: a
    test declares modules beside the types they use, and only its frame knows those.
    """

    global_names: Mapping[str, Any]
    local_names: Mapping[str, Any] = {}


class Place(msgspec.Struct, frozen=True, eq=False):
    """Where a declaration stands: its source place and its scope."""

    source: SourceRef
    scope: Scope


def place_of_function(code: CodeType, global_names: Mapping[str, Any], qualname: str) -> Place:
    """Give the place of a decorated function; the caller's frame is looked at only for a nested one."""
    local_names: Mapping[str, Any] = {}
    if "<locals>" in qualname:
        local_names = declaring_frame().f_locals
    return Place(SourceRef(code.co_filename, code.co_firstlineno), Scope(global_names, local_names))


def place_of_class() -> Place:
    """Give the place of the class statement that is being carried out."""
    frame = declaring_frame()
    local_names = {} if frame.f_locals is frame.f_globals else frame.f_locals
    return Place(SourceRef(frame.f_code.co_filename, frame.f_lineno), Scope(frame.f_globals, local_names))


def declaring_frame() -> FrameType:
    """Find the frame of the user's code that declares a module: the nearest outside of Towline."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if not (name.startswith("towline.modules.") or name in _CLASS_MAKERS):
            return frame
        frame = frame.f_back
    raise RuntimeError("a module is declared by no code at all")
