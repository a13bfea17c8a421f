"""Digest the input files of a cached task (CACHE-02, CACHE-04). Blocking: run it in a thread."""

from __future__ import annotations

import os
from hashlib import sha256
from typing import TYPE_CHECKING

from towline.artifacts.matching import find
from towline.errors.artifacts import ArtifactError
from towline.execution.fingerprints import UncacheableError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

FILES_LIMIT = 100_000
"""CACHE-10."""


def digest_files(root: Path, patterns: Iterable[str]) -> dict[str, bytes]:
    """Return a part per pattern and per matched file: its executable bit and the digest of its content.

    Times and sizes are no part of it: a checkout sets new times. A link counts by what it leads to.

    Raises:
        UncacheableError: A pattern leads out of the root or matches too much, or a file cannot be read.
    """
    parts: dict[str, bytes] = {}
    for pattern in patterns:
        try:
            match = find(root, pattern, "an input of the cache")
            entries = () if match is None else match.entries
            parts[f"pattern {pattern}"] = b"%d" % len(entries)
            if len(parts) + len(entries) > FILES_LIMIT:
                raise UncacheableError(f"the inputs are more than {FILES_LIMIT:,} files, at pattern {pattern!r}")
            for entry in entries:
                path = os.path.relpath(entry.source, root).replace(os.sep, "/")
                parts[f"file {path}"] = _content(entry.source)
        except (OSError, ArtifactError) as error:
            raise UncacheableError(f"input {pattern!r}: {error}") from error
    return parts


def _content(path: str) -> bytes:
    if os.path.isdir(path):
        return b"folder"
    if not os.path.isfile(path):
        return b"link " + os.fsencode(os.readlink(path))
    digest = sha256()
    with open(path, "rb", buffering=0) as file:
        executable = os.fstat(file.fileno()).st_mode & 0o100
        while chunk := file.read(1024 * 1024):
            digest.update(chunk)
    return b"%d %b" % (bool(executable), digest.hexdigest().encode("ascii"))
