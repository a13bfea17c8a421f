"""A listener is open to this machine freely, to others only with a token."""

from __future__ import annotations

import pytest

from towline.access import check_listener, format_address, is_loopback, parse_address
from towline.errors import ConfigurationError
from towline.testing import clause


@pytest.mark.parametrize(
    ("text", "parts"),
    [("127.0.0.1:5555", ("127.0.0.1", 5555)), ("[::1]:0", ("::1", 0)), ("build-7.example:80", ("build-7.example", 80))],
)
def test_an_address_is_read_and_written_alike(text: str, parts: tuple[str, int]) -> None:
    """What a listener prints can be pasted into a flag."""
    assert parse_address(text) == parts
    assert format_address(*parts) == text


@pytest.mark.parametrize("text", ["", "host", "host:", ":80", "host:-1", "host:65536", "host:8o", "host:000080"])
def test_a_wrong_address_is_refused_with_an_example(text: str) -> None:
    """The user sees what was read and how it should look."""
    with pytest.raises(ConfigurationError, match="HOST:PORT"):
        parse_address(text)


def test_a_port_to_dial_cannot_be_zero() -> None:
    """Port 0 means "any" for a listener and nothing for a caller."""
    with pytest.raises(ConfigurationError):
        parse_address("127.0.0.1:0", allow_port_zero=False)


@pytest.mark.parametrize(
    ("host", "local"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False),
     ("10.0.0.1", False), ("localhost.evil.example", False)],
)  # fmt: skip
def test_loopback_is_judged_by_address(host: str, local: bool) -> None:
    """A name that merely looks local is not."""
    assert is_loopback(host) is local


@clause("OFF-801")
def test_listening_beyond_the_machine_needs_a_token() -> None:
    """An open port that runs kernels for anyone is refused at start, with the three places to set the token."""
    names = {"flag": "--token-file", "variable": "TOWLINE_TOKEN", "setting": "offload.token"}
    check_listener("127.0.0.1", None, **names)
    check_listener("0.0.0.0", "0123456789abcdef", **names)

    with pytest.raises(ConfigurationError) as refusal:
        check_listener("0.0.0.0", "", **names)

    assert all(name in str(refusal.value) for name in names.values())
