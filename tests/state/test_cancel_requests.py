"""A request to end a run, as its owner reads it on the server."""

from __future__ import annotations

import msgspec
import pytest

from towline.state.redis_cancel import CancelRequest, Holder, asked_by
from towline.testing import clause


def holder(token: str) -> bytes:
    return msgspec.json.encode(Holder(id="m-1", host="h", pid=1, run_id="r-1", since="", token=token))


def request(token: str) -> bytes:
    return msgspec.json.encode(CancelRequest(token=token, by="process 7 on h"))


@clause("CTL-28")
def test_a_request_reaches_the_owner_that_it_names() -> None:
    """And names who asks, for the report of the run."""
    assert asked_by(request("a"), holder("a")) == "process 7 on h"


@clause("CTL-28")
@pytest.mark.parametrize(
    ("asked", "owner"),
    [
        (request("a"), holder("b")),
        (request(""), holder("")),
        (b"", holder("a")),
        (b"{", holder("a")),
        (b"\xff", b"\xff"),
    ],
)
def test_a_request_reaches_nobody_else(asked: bytes, owner: bytes) -> None:
    """A run that follows a cancelled one of the same name must not stop too; damage asks nothing."""
    assert asked_by(asked, owner) is None
