"""Content digests, spelled ``sha256:<64 hex digits>`` everywhere but in file names."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_EMPTY = sha256()
"""Copied for each digest: OpenSSL looks up the algorithm anew for each that is made, which takes twice as long."""

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")


def digest_of_parts(parts: Iterable[bytes]) -> str:
    """Return the digest of bytes that come in parts, as ``digest_of`` of all of them joined."""
    digest = _EMPTY.copy()
    for part in parts:
        digest.update(part)
    return f"sha256:{digest.hexdigest()}"


def digest_of(data: bytes | bytearray | memoryview) -> str:
    """Return the digest of some bytes as ``sha256:<hex>``."""
    digest = _EMPTY.copy()
    digest.update(data)
    return f"sha256:{digest.hexdigest()}"


def is_digest(text: str) -> bool:
    """Say whether a text is a well-formed digest."""
    return _DIGEST.match(text) is not None


def digest_segment(digest: str) -> str:
    """Return the digest as a file name, ``sha256-<hex>``: a colon is not allowed everywhere (ART-06)."""
    return digest.replace(":", "-", 1)
