"""Exceptions to records, and back where that is safe (SER-12, SER-13, SER-14).

Nothing of a record is imported or evaluated: a name in it is looked up in a list of types that take text.
"""

from __future__ import annotations

import builtins
import os
from typing import TYPE_CHECKING, Any

import msgspec

import towline.errors as errors
from towline.errors.root import TowlineError
from towline.errors.values import RemoteModuleError
from towline.serialization.error_text import format_record
from towline.serialization.errors_record import ErrorRecord

if TYPE_CHECKING:
    from towline.serialization.errors_record import ErrorArgument

DEPTH_LIMIT = 16
NODE_LIMIT = 200
TRACEBACK_LIMIT = 64 * 1024
TEXT_LIMIT = 64 * 1024
"""Characters of one error's text; more is of no use to anyone who reads it."""

_REBUILT: frozenset[type[Exception]] = frozenset(
    {
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        LookupError,
        AttributeError,
        RuntimeError,
        NotImplementedError,
        RecursionError,
        ArithmeticError,
        ZeroDivisionError,
        OverflowError,
        AssertionError,
        EOFError,
        MemoryError,
        TimeoutError,
    }
    | {
        kind
        for kind in vars(builtins).values()
        if isinstance(kind, type) and issubclass(kind, OSError) and kind.__module__ == "builtins"
    }
)
_BY_NAME: dict[str, type[Exception]] = {kind.__name__: kind for kind in _REBUILT}
_ORIGIN = "towline_record"
"""Attribute of a rebuilt error: the record that it came as, so that forwarding loses nothing (SER-14)."""


def record_of(error: BaseException, worker_id: str | None = None) -> ErrorRecord:
    """Describe an exception with its causes, notes and group members.

    Args:
        error: Any exception; one that was rebuilt from a record gives that record again.
        worker_id: The node where it was raised.
    """
    return _Recorder(worker_id).record(error, 1)


class _Recorder:
    """Walks a tree of exceptions; what lies beyond 16 levels or 200 nodes is marked as cut (SER-12)."""

    def __init__(self, worker_id: str | None) -> None:
        self._worker_id = worker_id
        self._nodes = 0
        self._seen: set[int] = set()

    def record(self, error: BaseException, depth: int) -> ErrorRecord:
        self._nodes += 1
        self._seen.add(id(error))
        origin = getattr(error, _ORIGIN, None)
        if isinstance(origin, ErrorRecord):
            return msgspec.structs.replace(origin, notes=_notes(error))
        if isinstance(error, RemoteModuleError):
            return ErrorRecord(
                type_name=error.type_name,
                text=error.text,
                traceback=error.traceback,
                notes=_notes(error),
                origin_worker_id=error.worker_id,
            )
        cause = self._below(error.__cause__, depth)
        context = None if error.__context__ is error.__cause__ else self._below(error.__context__, depth)
        inner = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
        members = [member for member in (self._below(e, depth) for e in inner) if member is not None]
        missing = (
            (cause is None and error.__cause__ is not None)
            or (context is None and error.__context__ not in (None, error.__cause__))
            or len(members) < len(inner)
        )
        return ErrorRecord(
            type_name=_type_name(type(error)),
            text=_text(error),
            traceback=_traceback(error),
            notes=_notes(error),
            cause=cause,
            context=context,
            context_shown=error.__cause__ is None and not error.__suppress_context__ and error.__context__ is not None,
            members=tuple(members),
            origin_worker_id=self._worker_id,
            rebuilt_args=_arguments(error),
            cut=missing,
        )

    def _below(self, error: BaseException | None, depth: int) -> ErrorRecord | None:
        if error is None or depth >= DEPTH_LIMIT or self._nodes >= NODE_LIMIT or id(error) in self._seen:
            return None
        return self.record(error, depth + 1)


def _towline_error(name: str) -> type[TowlineError] | None:
    """Find one of Towline's own errors; the list of their room is closed, so that no name imports anything else."""
    found: type[TowlineError] | None = getattr(errors, name) if name in errors.__all__ else None
    return found


def _type_name(kind: type) -> str:
    """As a traceback names it: built-in, Towline's and the script's own types without their module."""
    if kind.__module__ in ("builtins", "__main__") or _towline_error(kind.__name__) is kind:
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def _text(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return error.message[:TEXT_LIMIT]
    try:
        return _travelling(str(error))[:TEXT_LIMIT]
    except Exception:  # noqa: BLE001 - a __str__ of the program may raise anything (SER-12)
        return _type_name(type(error))


def _notes(error: BaseException) -> tuple[str, ...]:
    notes = getattr(error, "__notes__", ())
    if not isinstance(notes, (list, tuple)):
        return ()
    return tuple(_travelling(note)[:TEXT_LIMIT] for note in notes if isinstance(note, str))[:NODE_LIMIT]


def _travelling(text: str) -> str:
    """Show lone surrogates by their escapes: UTF-8 cannot carry them."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _traceback(error: BaseException) -> str:
    """The frames of this error alone, cut in the middle: the ends say where it began and where it was raised."""
    if error.__traceback__ is None:
        return ""
    import traceback

    text = _travelling("".join(traceback.format_tb(error.__traceback__)))
    data = text.encode()
    if len(data) <= TRACEBACK_LIMIT:
        return text
    half = TRACEBACK_LIMIT // 2 - 32
    return f"{data[:half].decode(errors='ignore')}\n  ... cut ...\n{data[-half:].decode(errors='ignore')}"


def _arguments(error: BaseException) -> tuple[ErrorArgument, ...] | None:
    """The constructor's arguments, where the type is one that is rebuilt and they are plain."""
    kind = type(error)
    if isinstance(error, OSError) and kind in _REBUILT:
        if error.errno is None:
            return (_text(error),) if error.args else ()
        name = error.filename
        name = os.fsdecode(name) if isinstance(name, (bytes, os.PathLike)) else name
        given: tuple[Any, ...] = (error.errno, error.strerror) if name is None else (error.errno, error.strerror, name)
    elif kind in _REBUILT:
        given = error.args
    elif isinstance(error, TowlineError) and _towline_error(kind.__name__) is kind:
        return tuple(error.args) if all(_is_plain(argument) for argument in error.args) else None
    else:
        return None
    return tuple(given) if all(_is_plain(argument) for argument in given) else (_text(error),)


def _is_plain(argument: object) -> bool:
    if isinstance(argument, tuple):
        return all(type(part) is not tuple and _is_plain(part) for part in argument)
    if type(argument) is float:
        return argument - argument == 0.0  # JSON has no NaN and no infinity
    if type(argument) is int:
        return -(2**63) <= argument < 2**63
    return argument is None or type(argument) is bool or (type(argument) is str and _travelling(argument) == argument)


def rebuild(record: ErrorRecord) -> Exception:
    """Give a record back as an exception.

    Allow-listed types are made from their texts; all else, also a record that a peer forged, becomes
    ``RemoteModuleError`` with the original's name, text, traceback and worker.
    """
    return _rebuild(record, 1)


def _rebuild(record: ErrorRecord, depth: int) -> Exception:
    deep = depth > DEPTH_LIMIT  # no honest record is deeper
    error = None if deep else _rebuilt(record, depth)
    if error is None:
        error = RemoteModuleError(record.type_name, record.text, format_record(record), record.origin_worker_id)
    for note in record.notes:
        error.add_note(note)
    if record.cause is not None and not deep:
        error.__cause__ = _rebuild(record.cause, depth + 1)
    elif record.context is not None and not deep:
        error.__context__ = _rebuild(record.context, depth + 1)
        error.__suppress_context__ = not record.context_shown
    setattr(error, _ORIGIN, record)
    return error


def _rebuilt(record: ErrorRecord, depth: int) -> Exception | None:
    if record.type_name == "ExceptionGroup" and record.members:
        return ExceptionGroup(record.text, [_rebuild(member, depth + 1) for member in record.members])
    if record.rebuilt_args is None:
        return None
    kind = _BY_NAME.get(record.type_name)
    if kind is None:
        known = _towline_error(record.type_name)
        if known is None or known is RemoteModuleError:
            return None
        kind = known
    try:
        error = kind(*record.rebuilt_args)
        str(error)
    except Exception:  # noqa: BLE001 - a forged record: its arguments are not those of the type
        return None
    return error if type(error) is kind else None
