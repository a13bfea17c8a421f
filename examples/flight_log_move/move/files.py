"""Files of the package: one record per line, gzip, the same bytes for the same records."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

import msgspec

Record = TypeVar("Record", bound=msgspec.Struct)


def write(file: Path, records: Iterable[msgspec.Struct]) -> int:
    """Write records beside their place, move them there when they are whole, and return how many there are."""
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(file.name + ".part")
    encode, rows = msgspec.json.Encoder().encode, 0
    with (
        fresh.open("wb") as raw,
        gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=1, mtime=0) as packed,
    ):
        for record in records:
            packed.write(encode(record) + b"\n")
            rows += 1
    os.replace(fresh, file)
    return rows


def read(file: Path, kind: type[Record]) -> Iterator[Record]:
    """Yield the records of a file."""
    decode = msgspec.json.Decoder(kind).decode
    with gzip.open(file, "rb") as lines:
        for line in lines:
            yield decode(line)


def write_sheets(folder: Path, contents: Iterable[tuple[str, bytes]]) -> int:
    """Write each sheet to a file that is named by its digest; return how many there are."""
    folder.mkdir(parents=True, exist_ok=True)
    count = 0
    for digest, content in contents:
        (folder / f"{digest}.csv.gz").write_bytes(content)
        count += 1
    return count


def read_sheet(folder: Path, digest: str) -> bytes:
    """Return the bytes of a sheet.

    Raises:
        ValueError: They are not the bytes that the name promises.
    """
    content = (folder / f"{digest}.csv.gz").read_bytes()
    found = sha256(content).hexdigest()
    if found != digest:
        raise ValueError(f"sheet {digest} is damaged: its bytes have the digest {found}. Export it again: --fresh")
    return content
