"""What an error is when it is stored or crosses a process border (SER-12)."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

ErrorArgument: TypeAlias = str | int | float | bool | tuple[str | int | float | bool | None, ...] | None
"""What an argument of a rebuilt error may be."""


class ErrorRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error as it travels and is stored; text only, nothing that runs.

    ``cause`` is what was raised ``from``; ``context`` what was being handled; ``context_shown`` says which
    of the two a traceback shows. ``members`` are those of an exception group. ``rebuilt_args`` are the
    constructor's arguments of the allow-listed types (SER-13).
    """

    type_name: str
    text: str = ""
    traceback: str = ""
    notes: tuple[str, ...] = ()
    cause: ErrorRecord | None = None
    context: ErrorRecord | None = None
    context_shown: bool = False
    members: tuple[ErrorRecord, ...] = ()
    origin_worker_id: str | None = None
    rebuilt_args: tuple[ErrorArgument, ...] | None = None
    cut: bool = False

    def rebuild(self) -> Exception:
        """Give the error back as an exception, of its own type where that is allowed (SER-13, SER-14)."""
        from towline.serialization.exceptions import rebuild

        return rebuild(self)
