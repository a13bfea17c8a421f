"""A worker that dies at any point of the protocol, with or without a word: the graph ends, and its bytes are right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_failure_rules import finish, submit, world

from towline.offload.calls import GraphRun
from towline.offload.messages import (
    Auth,
    CallAck,
    CallMessage,
    Challenge,
    Data,
    Fetch,
    Heartbeat,
    HeartbeatAck,
    Hello,
    Message,
    Pull,
    Result,
    ResultAck,
    Welcome,
)
from towline.testing import clause

POINTS: list[tuple[type[Message], str]] = [
    (Challenge, "to worker"), (Auth, "to master"), (Hello, "to master"), (Welcome, "to worker"), (Heartbeat, "to master"),
    (HeartbeatAck, "to worker"), (CallMessage, "to worker"), (CallAck, "to master"), (Pull, "to master"), (Data, "to worker"),
    (Result, "to master"), (Fetch, "to worker"), (Data, "to master"), (ResultAck, "to worker"),
]  # fmt: skip


@clause("OFF-604", "OFF-610", "OFF-507")
@pytest.mark.parametrize("delivered", [True, False], ids=["after", "before"])
@pytest.mark.parametrize("said", [True, False], ids=["closes", "vanishes"])
@pytest.mark.parametrize(
    ("kind", "direction"), POINTS, ids=lambda value: value.__name__ if isinstance(value, type) else value.split()[1]
)
def test_death_at_a_point_of_the_protocol(kind: type[Message], direction: str, said: bool, delivered: bool) -> None:
    """Two workers; the first dies when this message passes for the second time, and comes back after a while."""
    w = world(workers=2)
    fate, seen = w.nemesis.fate, [0]

    def deadly(link: int, towards: str, nth: int, frame: Any, now: float) -> Any:
        mine = w.nemesis.worker_of.get(link) == 0
        if mine and towards == direction and isinstance(frame.message, kind) and (probe_free(frame.message) or seen[0]):
            seen[0] += 1
            if seen[0] == 1:
                w.clock.call_soon(w._kill, 0, w.age + 8.0, 1, said)
                return fate(link, towards, nth, frame, now) if delivered else []
        return fate(link, towards, nth, frame, now)

    w.nemesis.fate = deadly  # type: ignore[method-assign]
    w.clock.run_until(lambda: w.core.live >= 1, 30.0)
    runs: list[GraphRun] = [submit(w, 3, size=1_000), submit(w, 3, size=40)]
    expected = [[_expected(call) for call in run.calls] for run in runs]
    outs = [[call.writes[0] for call in run.calls] for run in runs]

    for run in runs:
        finish(w, run)

    for mine, wanted in zip(outs, expected, strict=True):
        assert [buffer._data.tobytes() for buffer in mine] == wanted
    w.clock.run_for(20.0)
    assert w.core.live == 2
    assert w.core.in_flight == 0


def probe_free(message: Any) -> bool:
    """Skip what belongs to the echo probe: only calls of the graph count, where the message is about one."""
    return getattr(message, "kid", 1) != 0


def _expected(call: Any) -> bytes:
    out = np.zeros_like(call.writes[0]._data)
    call.function.function([call.reads[0]._data], [out], **call.params)
    return out.tobytes()
