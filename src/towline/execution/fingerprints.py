"""What a cached result depends on, as one digest and as parts that can be compared (CACHE-02, CACHE-09). Pure."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FORMAT = 1
"""Raised when parts change their meaning: entries of another format are never found."""


class Fingerprint(msgspec.Struct, frozen=True):
    """The digest of all parts, and each part's own by its name; values themselves are not kept."""

    digest: str
    parts: dict[str, str]


class UncacheableError(Exception):
    """Something that a fingerprint needs cannot be had; the text says what, and the task runs uncached."""


def fingerprint_of(parts: Iterable[tuple[str, bytes]]) -> Fingerprint:
    """Digest named parts.

    Each name and value goes in with its length in front, so that no two lists of parts look alike.
    """
    whole = sha256(b"towline cache %d" % FORMAT)
    named: dict[str, str] = {}
    for name, value in parts:
        for piece in (name.encode("utf-8", "surrogatepass"), value):
            whole.update(b"%d:" % len(piece))
            whole.update(piece)
        named[name] = sha256(value).hexdigest()[:16]
    return Fingerprint(f"sha256:{whole.hexdigest()}", named)


def changed_parts(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Say in words which parts differ, for the line that tells why a task was not found."""
    words = []
    for name in sorted(before.keys() | now.keys()):
        if name not in now:
            words.append(f"{name} is gone")
        elif name not in before:
            words.append(f"{name} is new")
        elif before[name] != now[name]:
            words.append(f"{name} changed")
    return words


def key_bytes(value: object) -> bytes:
    """Encode a value of ``Cache(key=...)``, or a parameter; equal values give equal bytes.

    Raises:
        UncacheableError: It has no JSON form, so that two different ones could look the same.
    """
    try:
        return _ENCODER.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        kind = type(value).__name__
        raise UncacheableError(f"a {kind} has no JSON form that tells one value from another: {error}") from error


def _plain(value: object) -> Any:
    from pathlib import PurePath

    if isinstance(value, PurePath):
        return value.as_posix()
    raise TypeError(type(value).__name__)


_ENCODER = msgspec.json.Encoder(order="deterministic", enc_hook=_plain)
