"""An error record as text, and with its secrets masked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from towline.serialization.errors_record import ErrorRecord

_DEPTH = 16
"""Levels that are shown; no honest record has more (SER-12)."""


def mask_record(record: ErrorRecord, mask: Callable[[str], str]) -> ErrorRecord:
    """Return the record with every text in it masked (SEC-04)."""
    return msgspec.convert(_masked(msgspec.to_builtins(record), mask), type(record))


def _masked(part: object, mask: Callable[[str], str]) -> object:
    if isinstance(part, str):
        return mask(part)
    if isinstance(part, dict):
        return {key: _masked(item, mask) for key, item in part.items()}
    if isinstance(part, (list, tuple)):
        return [_masked(item, mask) for item in part]
    return part


def format_record(record: ErrorRecord) -> str:
    """Show an error as Python shows one: cause or context first, frames, text, notes, group members."""
    return "".join(_lines(record, "", 1))


def _lines(record: ErrorRecord, margin: str, depth: int) -> list[str]:
    if depth > _DEPTH:
        return [f"{margin}... more was cut\n\n"]
    lines: list[str] = []
    if record.cause is not None:
        lines += _lines(record.cause, margin, depth + 1)
        lines.append(f"\n{margin}The above exception was the direct cause of the following exception:\n\n")
    elif record.context is not None and record.context_shown:
        lines += _lines(record.context, margin, depth + 1)
        lines.append(f"\n{margin}During handling of the above exception, another exception occurred:\n\n")
    shown = record.traceback if record.traceback.startswith("Traceback ") else ""
    if not shown:
        head = "Traceback (most recent call last):\n" + record.traceback if record.traceback else ""
        shown = f"{head}{record.type_name}: {record.text}\n" if record.text else f"{head}{record.type_name}\n"
    shown += "".join(f"{note}\n" for note in record.notes)
    if record.cut:
        shown += "... more was cut\n"
    lines.append("".join(f"{margin}{line}\n" for line in shown.splitlines()))
    for number, member in enumerate(record.members, 1):
        lines.append(f"{margin}  ---- {number} of {len(record.members)} ----\n")
        lines += _lines(member, margin + "  ", depth + 1)
    return lines
