"""Any bytes end in a normal state or a closed link, with bounded memory (OFF-806, OFF-974)."""

from __future__ import annotations

import contextlib
import struct
import tracemalloc
import zlib
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from towline.errors import FrameError
from towline.offload.frames import BODY_DIGEST, HEADER, MAX_FRAME_BODY, OPTIONAL, Frame, Head, encode
from towline.offload.links import Outbox
from towline.offload.messages import MESSAGES, BufferRef, CallAck, CallMessage, Data, Heartbeat, JobReport, Result
from towline.offload.pieces import ArrayPlan
from towline.offload.reader import FrameReader
from towline.testing import clause


class Sink:
    """Takes every body into fresh memory."""

    def __init__(self) -> None:
        self.frames: list[tuple[Head, bytes]] = []
        self._parts: list[memoryview] = []

    def body_for(self, head: Head) -> Sequence[memoryview] | None:
        self._parts = [memoryview(bytearray(head.body_bytes))]
        return self._parts

    def on_frame(self, head: Head, landed: bool) -> None:
        self.frames.append((head, b"".join(self._parts)))


def wire(*frames: Frame) -> bytes:
    return b"".join(b"".join(encode(frame, seq)) for seq, frame in enumerate(frames))


SAMPLES = [
    Frame(CallAck(7, 8, "accepted")),
    Frame(Data(1, 0, 300_000), (memoryview(bytes(range(256)) * 1000),)),
    Frame(Data(2, 0, 5), (memoryview(b"ab"), memoryview(b""), memoryview(b"cde")), flags=BODY_DIGEST),
    Frame(Heartbeat(1, 2, 3.5, [JobReport(4, 5, 2, 0.5, 6)], [(7, 8, 9)], 10, 11, 0.5, [(1, 2)])),
    Frame(CallMessage(1, 2, 1, 3, {"x": 1.5, "names": ["a"]}, [BufferRef(1, 2, "<f8", [3], 24)], [], 1)),
]


@clause("OFF-701", "OFF-703")
@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 70_000), min_size=1, max_size=40))
def test_frames_survive_any_split(cuts: list[int]) -> None:
    """A stream has no borders: a header may come in two reads, a body in a hundred."""
    sink = Sink()
    reader = FrameReader(sink, 4096)
    data = memoryview(wire(*SAMPLES))
    for cut in cuts:
        reader.feed(data[:cut])
        data = data[cut:]
    reader.feed(data)

    assert [head.message for head, _ in sink.frames] == [frame.message for frame in SAMPLES]
    assert [body for _, body in sink.frames] == [b"".join(frame.body) for frame in SAMPLES]


def test_golden_frames() -> None:
    """A frame of protocol 1 is these bytes, for ever: other versions of Towline must read them."""
    golden = Path(__file__).with_name("golden_frames.txt")
    lines = [
        f"{type(frame.message).__name__} {b''.join(encode(frame, 3))[:200].hex()}"
        for frame in SAMPLES
        if frame.body_bytes < 1000
    ]

    assert golden.read_text().splitlines() == lines


def crafted(**changes: int) -> bytes:
    fields = {
        "magic": 0x5754,
        "major": 1,
        "kind": 9,
        "flags": 0,
        "lane": 0,
        "meta": 3,
        "crc": 0,
        "body": 0,
        "seq": 0,
    } | changes
    return HEADER.pack(*fields.values()) + b"\x93\x01\x02"


@clause("OFF-806", "OFF-803")
@pytest.mark.parametrize(
    ("changes", "field"),
    [({"magic": 1}, "magic"), ({"major": 2}, "version"), ({"flags": 64}, "flags"), ({"lane": 2}, "lane"), ({"meta": 2_000}, "meta_len"),
     ({"body": MAX_FRAME_BODY + 17}, "body_len"), ({"body": 1 << 63}, "body_len"), ({"seq": 1}, "seq"), ({}, "crc")],
)  # fmt: skip
def test_a_wrong_header_allocates_nothing(changes: dict[str, int], field: str) -> None:
    """Every field is checked before memory is taken for what it promises."""
    reader = FrameReader(Sink())
    tracemalloc.start()
    with pytest.raises(FrameError, match=field):
        reader.feed(crafted(**changes))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 64 * 1024


def test_an_unknown_type_is_skipped_only_if_it_says_so() -> None:
    """A later minor version may send hints that this one does not know."""
    meta = msgspec.msgpack.encode([1])

    def unknown(flags: int) -> bytes:
        lead = struct.pack("<HBBHHI", 0x5754, 1, 99, flags, 0, len(meta))
        tail = struct.pack("<QQ", 4, 0)
        crc = zlib.crc32(meta, zlib.crc32(tail, zlib.crc32(lead)))
        return lead + crc.to_bytes(4, "little") + tail + meta + b"body"

    sink = Sink()
    reader = FrameReader(sink)
    reader.feed(unknown(OPTIONAL))
    reader.feed(b"".join(encode(SAMPLES[0], 1)))
    assert [head.message for head, _ in sink.frames] == [SAMPLES[0].message]
    with pytest.raises(FrameError, match="unknown"):
        FrameReader(Sink()).feed(unknown(0))


def test_a_changed_body_is_seen_with_digests() -> None:
    """In full verification a single flipped bit of an array closes the link."""
    data = bytearray(wire(SAMPLES[2]))
    data[-20] ^= 1
    with pytest.raises(FrameError, match="digest"):
        FrameReader(Sink()).feed(data)


@clause("OFF-974")
@settings(max_examples=300, deadline=None)
@given(st.integers(0, 1 << 30))
def test_mangled_streams_end_in_a_frame_error_or_frames(seed: int) -> None:
    """Fuzz: flips, cuts, repeats and noise raise nothing but ``FrameError``."""
    random = Random(seed)
    data = bytearray(wire(*random.sample(SAMPLES, 3))[:4000])
    for _ in range(random.randint(1, 6)):
        place = random.randrange(len(data))
        match random.randrange(4):
            case 0:
                data[place] ^= 1 << random.randrange(8)
            case 1:
                del data[place : place + random.randrange(1, 40)]
            case 2:
                data[place:place] = data[: random.randrange(1, 60)]
            case _:
                data[place:place] = random.randbytes(random.randrange(1, 40))
        if not data:
            data = bytearray(b"\0")
    with contextlib.suppress(FrameError):
        FrameReader(Sink(), 4096).feed(data)


@clause("OFF-806")
@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60))
def test_mangled_metas_end_in_a_frame_error(meta: bytes) -> None:
    """With a right checksum the decoder itself meets the noise, for every type."""
    for kind in MESSAGES:
        lead = struct.pack("<HBBHHI", 0x5754, 1, kind.code, 0, 0, len(meta))
        tail = struct.pack("<QQ", 0, 0)
        crc = zlib.crc32(meta, zlib.crc32(tail, zlib.crc32(lead)))
        with contextlib.suppress(FrameError):
            FrameReader(Sink()).feed(lead + crc.to_bytes(4, "little") + tail + meta)


@clause("OFF-806")
@pytest.mark.parametrize(
    "ref",
    [BufferRef(1, 1, "<f8", [-1], 8), BufferRef(1, 1, "<f8", [1 << 40, 1 << 40], 8), BufferRef(1, 1, "<f8", [2], 8),
     BufferRef(1, 1, "O", [2], 16), BufferRef(1, 1, "nonsense", [2], 16), BufferRef(1, 1, "<f8", [1] * 33, 8), BufferRef(1, 1, "<f8", [2], -16)],
)  # fmt: skip
def test_references_that_cannot_be_are_refused(ref: BufferRef) -> None:
    """Negative, overflowing and lying shapes are seen before an array is made."""
    with pytest.raises(ValueError, match=r".+"):
        ArrayPlan(ref, 1 << 30)


@clause("OFF-705")
def test_control_goes_before_bulk() -> None:
    """A heartbeat does not wait behind a gigabyte."""
    outbox = Outbox()
    for _ in range(3):
        outbox.put(Frame(Data(1, 0, 4), (memoryview(b"body"),)))
    outbox.put(Frame(CallAck(1, 1, "accepted")))
    order = []
    while (taken := outbox.next()) is not None:
        order.append(type(taken[0].message))

    assert order == [CallAck, Data, Data, Data]


@clause("OFF-508")
def test_queued_bytes_can_be_made_private() -> None:
    """Before a bound array changes, what a link still has to send of it is copied."""
    array = np.zeros(4, np.uint8)
    outbox = Outbox()
    outbox.put(Frame(Data(1, 0, 4), (memoryview(array),), pin=(7,)))
    outbox.detach(7)
    array[:] = 9
    taken = outbox.next()

    assert taken is not None
    assert b"".join(taken[1])[-4:] == b"\0\0\0\0"


def test_a_result_with_later_fields_is_still_read() -> None:
    """A newer peer adds fields at the end; an older one leaves them out."""
    decode: Any = msgspec.msgpack.Decoder(Result).decode
    assert decode(msgspec.msgpack.encode([1, 2, "ok", [], {}, None, "later"])).status == "ok"
    assert decode(msgspec.msgpack.encode([1, 2, "ok"])).writes == []
