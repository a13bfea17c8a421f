"""Read records that a peer or a file gives: msgspec's check, with Towline's error and path (SER-10)."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from towline.errors.values import SerializationError

Record = TypeVar("Record")


def decode_record(kind: type[Record], data: bytes | bytearray | memoryview | str, what: str = "record") -> Record:
    """Read one JSON record strictly; unknown fields are ignored, for a newer peer may send them.

    Raises:
        SerializationError: A field is missing or of a wrong type, with a path like ``record.assignments[3].priority``.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        detail, _, place = str(error).partition(" - at `")
        raise SerializationError(what + place.rstrip("`").removeprefix("$"), detail) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SerializationError(what, f"is no JSON: {error}") from error
    except RecursionError:
        raise SerializationError(what, "is nested too deeply") from None
