"""The operator's answers: a file that a person writes and the gates read."""

from __future__ import annotations

from pathlib import Path

import msgspec


class Mapping(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``airports``: code in the source -> ident in the directory, or null for an airport that the directory lacks."""

    airports: dict[str, str | None] = {}


def read_mapping(file: str) -> Mapping:
    """Return the answers, none while there is no file.

    Raises:
        ValueError: The file is not of this form; says where.
    """
    try:
        return msgspec.json.decode(Path(file).read_bytes(), type=Mapping)
    except FileNotFoundError:
        return Mapping()
    except msgspec.DecodeError as error:
        raise ValueError(f"{file}: {error}") from error
