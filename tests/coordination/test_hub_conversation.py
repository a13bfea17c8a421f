"""What a connection may say, decided without sockets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from towline.coordination.hub.conversation import Close, Conversation, Say, Start, Stop
from towline.coordination.hub.frames import CloseFrame, Splitter, close_frame, framed
from towline.coordination.hub.messages import ASKS, Reply
from towline.coordination.hub.presence import Presence
from towline.coordination.records import NoWork, RunState, SessionRef
from towline.errors.hub import HubRefusedError
from towline.testing import clause

if TYPE_CHECKING:
    from collections.abc import Sequence

TOKEN = "a token of the test"
OWN: dict[str, Any] = {"worker_id": "w", "session": "s1"}
LEASE = {"task_id": "a", "epoch": 1, "worker_id": "w"}
OUTCOME = {"task_id": "a", "epoch": 1, "worker_id": "w", "state": "succeeded"}
FIELDS = (
    "worker",
    "worker_id",
    "session",
    "token",
    "wait_s",
    "lease",
    "task_id",
    "epoch",
    "status",
    "outcome",
    "events",
)
REGISTRATION = {**OWN, "run_id": "run-1", "program": "p", "fingerprint": "f"}


class Talk:
    """One connection; counts ids and remembers what came of each request."""

    def __init__(self, *, token: str | None = TOKEN) -> None:
        self.conversation = Conversation("run-1", token)
        self.last_id = 0
        self.started: dict[int, Any] = {}

    def say(self, op: str, args: dict[str, Any] | None = None, *, request_id: int | None = None) -> Sequence[Any]:
        self.last_id = self.last_id + 1 if request_id is None else request_id
        return self.raw(msgspec.json.encode({"id": self.last_id, "op": op, "args": args or {}}))

    def raw(self, text: bytes) -> Sequence[Any]:
        actions = self.conversation.heard(text)
        self.started.update({action.id: action.ask for action in actions if isinstance(action, Start)})
        return actions

    def greet(self, **args: Any) -> Talk:
        (start,) = self.say("hello", {"token": TOKEN, **args})
        self.conversation.finished(start.id, start.ask, RunState(state="running"))
        return self

    def register(self) -> Talk:
        (start,) = self.say("register", {"registration": REGISTRATION})
        self.conversation.finished(start.id, start.ask, RunState(state="running"))
        return self


def code_of(actions: Sequence[Any]) -> str:
    """The refusal that was said."""
    reply = msgspec.json.decode(actions[0].text, type=Reply)
    assert reply.error is not None, actions
    return reply.error.code


@clause("COORD-H01")
def test_the_hub_only_answers() -> None:
    """A message that nobody asked for would be lost while its worker is away."""
    talk = Talk().greet().register()
    (start,) = talk.say("claim", {"worker": OWN, "token": "t"})
    (said,) = talk.conversation.finished(start.id, start.ask, NoWork(3))
    assert isinstance(said, Say)
    assert msgspec.json.decode(said.text) == {
        "id": start.id,
        "ok": {"no_work": {"type": "no_work", "work_version": 3}},
    }


@clause("COORD-H02")
@pytest.mark.parametrize("request_id", [0, -1, 1, 2**70])
def test_ids_grow(request_id: int) -> None:
    """Two open requests of one id could not be told apart."""
    talk = Talk().greet()
    actions = talk.say("run_state", request_id=request_id)
    assert code_of(actions) == "bad_request"


@clause("COORD-H02")
def test_answers_come_in_any_order() -> None:
    """A parked claim does not hold up a heartbeat."""
    talk = Talk().greet().register()
    (claim,) = talk.say("claim", {"worker": OWN, "token": "t"})
    (beat,) = talk.say("heartbeat", {"status": OWN})
    assert claim.id < beat.id
    (said,) = talk.conversation.failed(beat.id, beat.ask, HubRefusedError("internal", "x"))
    assert isinstance(said, Say)
    assert msgspec.json.decode(said.text)["id"] == beat.id


@clause("COORD-H03")
def test_a_connection_begins_with_hello() -> None:
    """Who has not shown the token and named the run learns nothing about it."""
    assert code_of(Talk().say("run_state")) == "unauthorized"
    actions = Talk().say("hello", {"token": "a wrong one"})
    assert code_of(actions) == "unauthorized"
    assert isinstance(actions[1], Close)
    assert code_of(Talk().say("hello", {"token": TOKEN, "wire": 99})) == "program_mismatch"


@clause("COORD-H03")
def test_another_run_is_named() -> None:
    """A worker that was started with an old run id must see which one it reached."""
    actions = Talk().say("hello", {"token": TOKEN, "run_id": "run-9"})
    reply = msgspec.json.decode(actions[0].text, type=Reply)
    assert reply.error is not None
    assert reply.error.code == "wrong_run"
    assert "run-1" in reply.error.message
    assert "run-9" in reply.error.message


@clause("COORD-H03")
def test_only_a_registered_worker_works() -> None:
    """Before it, a connection may look at the run and register."""
    talk = Talk().greet()
    for op in ("claim", "heartbeat", "publish_outcome", "wait_for_outcome", "send_events", "wait_for_signal"):
        assert code_of(talk.say(op)) == "not_registered"
    assert isinstance(talk.say("run_state")[0], Start)
    assert isinstance(talk.register().say("wait_for_work", {"seen": 1})[0], Start)


@clause("COORD-H04")
@pytest.mark.parametrize(
    ("op", "args"),
    [
        ("claim", {"worker": {**OWN, "worker_id": "other"}, "token": "t"}),
        ("claim", {"worker": {**OWN, "session": "another"}, "token": "t"}),
        ("heartbeat", {"status": {**OWN, "worker_id": "other"}}),
        ("heartbeat", {"status": {**OWN, "in_flight": [{**LEASE, "worker_id": "other"}]}}),
        ("release", {"worker": OWN, "lease": {**LEASE, "worker_id": "other"}, "started": True}),
        ("publish_outcome", {"outcome": {**OUTCOME, "worker_id": "other"}, "lease": LEASE}),
        ("publish_outcome", {"outcome": OUTCOME, "lease": {**LEASE, "worker_id": "other"}}),
        ("publish_outcome", {"outcome": {**OUTCOME, "task_id": "b"}, "lease": LEASE}),
        (
            "publish_and_claim",
            {"outcome": OUTCOME, "lease": LEASE, "worker": {**OWN, "worker_id": "other"}, "token": "t"},
        ),
        ("send_events", {"batch": {**OWN, "session": "another", "run_id": "run-1", "owner_epoch": 1}}),
        ("register", {"registration": {**REGISTRATION, "worker_id": "other"}}),
    ],
)
def test_a_connection_speaks_for_its_session_only(op: str, args: dict[str, Any]) -> None:
    """A worker with a fault, or with bad intent, cannot act in another's name."""
    assert code_of(Talk().greet().register().say(op, args)) == "wrong_worker"


@clause("COORD-H05")
@pytest.mark.parametrize("op", ["open_run", "beat", "enqueue", "withdraw", "expel", "feed", "send_signal", "complete"])
def test_there_are_no_master_operations(op: str) -> None:
    """A worker's token stops nobody's run."""
    assert code_of(Talk().greet().register().say(op, {"owner_epoch": 1})) == "unknown_op"


@clause("COORD-H18")
def test_open_requests_are_bounded() -> None:
    """One worker with a fault takes no memory without limit."""
    talk = Talk().greet().register()
    for _ in range(256):
        assert isinstance(talk.say("wait_for_outcome", {"task_id": "a"})[0], Start)
    actions = talk.say("wait_for_outcome", {"task_id": "a"})
    assert code_of(actions) == "too_many"
    assert actions[1] == Close(1013, "more than 256 requests are open")


@clause("COORD-H18")
def test_connections_are_bounded() -> None:
    """A flood of connections leaves room for those who have shown that they belong here."""
    presence = Presence(connection_limit=20, ungreeted_limit=2)
    for number in range(20):
        assert presence.came(number) is None
        presence.greeted(number)
    assert presence.came(20) is not None
    presence.left(0)
    presence.left(1)
    presence.left(2)
    assert [presence.came(number) is None for number in (21, 22, 23)] == [True, True, False]


@clause("COORD-H20")
def test_what_cannot_be_read_is_refused_with_its_path() -> None:
    """Two versions that differ find the field by the text; noise ends the connection."""
    talk = Talk().greet().register()
    actions = talk.say("claim", {"worker": OWN, "token": 7})
    reply = msgspec.json.decode(actions[0].text, type=Reply)
    assert reply.error is not None
    assert (reply.id, reply.error.code) == (talk.last_id, "bad_request")
    assert "$.token" in reply.error.message
    assert code_of(talk.raw(b'{"id": 90, "op": "\xff"}')) == "bad_request"
    third = talk.raw(b"[" * 100_000)
    assert code_of(third) == "bad_request"
    assert third[1] == Close(1008, "messages that cannot be read")


def test_a_cancel_reaches_the_request_that_it_names() -> None:
    """It is answered in any case, so that its sender need not keep it."""
    talk = Talk().greet().register()
    (claim,) = talk.say("claim", {"worker": OWN, "token": "t"})
    stop, done = talk.say("cancel", {"id": claim.id})
    assert stop == Stop(claim.id)
    assert isinstance(done, Say)
    assert code_of(talk.conversation.stopped(claim.id)) == "cancelled"
    (again,) = talk.say("cancel", {"id": claim.id})
    assert isinstance(again, Say)


@clause("COORD-H06")
def test_the_newer_connection_speaks_for_a_session() -> None:
    """The older one is a connection that broke on one side only."""
    presence, session = Presence(), SessionRef("w", "s1")
    assert presence.speaks(1, session) is None
    assert presence.speaks(1, session) is None
    assert presence.speaks(2, session) == 1
    presence.left(1)
    assert presence.speaks(3, session) == 2


@pytest.mark.parametrize("cut", [1, 2, 3, 4, 7, 100])
def test_frames_are_whole_however_they_arrive(cut: int) -> None:
    """A stream knows no messages: they come in pieces, and several at once."""
    texts = [b"{}", b"", b'{"id": 1}' * 10]
    data = b"".join(map(framed, texts)) + close_frame(4001, "taken over")
    splitter, found = Splitter(), []
    for start in range(0, len(data), cut):
        found += splitter.take(data[start : start + cut])
    assert found == [*texts, CloseFrame(4001, "taken over")]


@clause("COORD-H18")
def test_a_frame_above_the_limit_is_not_read() -> None:
    """It is refused by its length alone: nothing of it is kept."""
    with pytest.raises(HubRefusedError, match="too_large"):
        Splitter(limit_bytes=10).take(framed(b"x" * 11)[:4])


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4),
    max_leaves=12,
)
_REQUESTS = st.builds(
    lambda request_id, op, args: msgspec.json.encode({"id": request_id, "op": op, "args": args}),
    st.integers(-2, 300),
    st.sampled_from([*ASKS, "complete", ""]),
    _JSON,
)


@clause("COORD-H20", "COORD-H01")
@settings(max_examples=150, deadline=None)
@given(st.lists(st.binary(max_size=40) | _REQUESTS, min_size=1, max_size=12), st.booleans())
def test_noise_never_breaks_a_connection_that_goes_on(texts: list[bytes], is_registered: bool) -> None:
    """Whatever a worker with a fault sends, it is answered, started or refused; no exception reaches the loop."""
    talk = Talk().greet()
    if is_registered:
        talk.register()
    faults = 0
    for text in texts:
        actions = talk.raw(text)
        assert actions
        assert sum(isinstance(action, Say | Start) for action in actions) == 1
        refused = [code_of([action]) for action in actions if isinstance(action, Say) and b'"error"' in action.text]
        faults += refused.count("bad_request")
        assert any(isinstance(action, Close) for action in actions) == (bool(refused) and faults >= 3)
