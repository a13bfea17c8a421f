"""Shared tokens: where they come from, how one is proven without travelling, how two are compared."""

from __future__ import annotations

import hmac
import os
from hashlib import sha256
from random import Random, SystemRandom
from typing import TYPE_CHECKING

from towline.errors.configuration import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

MIN_TOKEN_CHARACTERS = 16
"""A shorter token can be guessed (COORD-H15)."""

NO_PROOF = b""
"""What stands for a proof where no token is set (OFF-802)."""


def new_token() -> str:
    """Make a token of 256 random bits, as 64 hex digits."""
    return os.urandom(32).hex()


def system_random() -> Random:
    """Return the system's randomness, for nonces that nobody may predict; it has no seed."""
    return SystemRandom()


def same_secret(left: str | bytes, right: str | bytes) -> bool:
    """Compare two secrets in time that does not depend on where they differ."""
    return hmac.compare_digest(_bytes(left), _bytes(right))


def proof(token: str | None, role: str, *parts: bytes | str | int) -> bytes:
    """Prove knowledge of the token over some parts, without sending it (OFF-802).

    HMAC-SHA256 over the role and the parts, each with its length before it, so that no two lists of
    parts give one text. Integers count as 8 bytes, little-endian. Empty without a token.
    """
    if not token:
        return NO_PROOF
    digest = hmac.new(token.encode(), digestmod=sha256)
    for part in (role, *parts):
        data = part.to_bytes(8, "little") if isinstance(part, int) else _bytes(part)
        digest.update(len(data).to_bytes(4, "little"))
        digest.update(data)
    return digest.digest()


def checked_token(token: str, source: str) -> str:
    """Return the token without surrounding space.

    Raises:
        ConfigurationError: It has fewer than 16 characters; the message holds its length, not the token.
    """
    token = token.strip()
    if len(token) < MIN_TOKEN_CHARACTERS:
        raise ConfigurationError(
            "token", f"{len(token)} characters", source, f"use at least {MIN_TOKEN_CHARACTERS} random characters"
        )
    return token


def read_token(environ: Mapping[str, str], variable: str = "TOWLINE_TOKEN", file: str | None = None) -> str | None:
    """Read the token from a file, else from ``variable``, else from the file that ``<variable>_FILE`` names.

    Raises:
        ConfigurationError: A named file cannot be read, or the token is too short.
    """
    path = file or (None if variable in environ else environ.get(f"{variable}_FILE"))
    if path is None:
        token = environ.get(variable)
        return checked_token(token, variable) if token else None
    try:
        with open(path, encoding="utf-8") as stream:
            return checked_token(stream.read(4096), path)
    except OSError as error:
        raise ConfigurationError(
            "token file", path, f"{variable}_FILE", f"make it readable ({error.strerror})"
        ) from error


def _bytes(secret: str | bytes) -> bytes:
    return secret.encode("utf-8", "surrogatepass") if isinstance(secret, str) else secret
