"""Tokens are compared in constant time, proven without travelling, and read from where the user put them."""

from __future__ import annotations

from pathlib import Path

import pytest

from towline.access import checked_token, new_token, proof, read_token, same_secret
from towline.errors import ConfigurationError
from towline.testing import clause

TOKEN = "0123456789abcdef"


@clause("OFF-802")
def test_a_proof_depends_on_token_role_and_every_part() -> None:
    """An attacker who saw one proof can use it nowhere else: not for another worker, nonce or direction."""
    good = proof(TOKEN, "w", b"nonce", "worker-1", 7)

    others = [
        proof(TOKEN + "x", "w", b"nonce", "worker-1", 7),
        proof(TOKEN, "m", b"nonce", "worker-1", 7),
        proof(TOKEN, "w", b"nonc", "eworker-1", 7),
        proof(TOKEN, "w", b"nonce", "worker-1", 8),
    ]

    assert same_secret(good, proof(TOKEN, "w", b"nonce", "worker-1", 7))
    assert all(not same_secret(good, other) for other in others)
    assert TOKEN.encode() not in good


@clause("OFF-802")
def test_without_a_token_the_proof_is_empty() -> None:
    """Loopback works without any setting, and an empty proof never equals a real one."""
    assert proof("", "w", b"nonce") == b""
    assert not same_secret(b"", proof(TOKEN, "w", b"nonce"))


def test_a_generated_token_has_256_bits() -> None:
    """A generated token cannot be guessed, and two are never equal."""
    assert len(bytes.fromhex(new_token())) == 32
    assert new_token() != new_token()


def test_a_short_token_is_refused_without_showing_it() -> None:
    """The message says how long it is; the token itself stays out of logs."""
    with pytest.raises(ConfigurationError) as refusal:
        checked_token("hunter2", "TOWLINE_TOKEN")

    assert "7 characters" in str(refusal.value)
    assert "hunter2" not in str(refusal.value)


def test_a_token_comes_from_file_variable_or_the_file_a_variable_names(tmp_path: Path) -> None:
    """Secrets managers mount files, shells set variables; a named file wins over both."""
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}-from-file\n")

    assert read_token({"TOWLINE_TOKEN": TOKEN}) == TOKEN
    assert read_token({"TOWLINE_TOKEN_FILE": str(file)}) == f"{TOKEN}-from-file"
    assert read_token({"TOWLINE_TOKEN": TOKEN}, file=str(file)) == f"{TOKEN}-from-file"
    assert read_token({}) is None


def test_an_unreadable_token_file_is_named(tmp_path: Path) -> None:
    """A wrong mount is a setting to correct, not a traceback."""
    with pytest.raises(ConfigurationError, match="missing"):
        read_token({}, file=str(tmp_path / "missing"))
