"""The twenty-one messages of protocol 1, as records that decode strictly (spec section 6).

Each is a msgpack array: unknown trailing fields are ignored, missing ones take their default.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

PROTOCOL = 1
CONTROL, BULK = 0, 1


class Message(msgspec.Struct, frozen=True, array_like=True):
    """What every message has: its number on the wire, and the lane it takes."""

    code: ClassVar[int] = 0
    lane: ClassVar[int] = CONTROL


class BufferRef(msgspec.Struct, frozen=True, array_like=True):
    """One version of one buffer, by name: never its address."""

    buffer_id: int
    version: int
    dtype: str
    shape: list[int]
    payload_bytes: int
    segment: tuple[str, int] | None = None


class KernelOffer(msgspec.Struct, frozen=True, array_like=True):
    """A kernel that a worker has."""

    name: str
    version: int
    signature: str


class JobReport(msgspec.Struct, frozen=True, array_like=True):
    """One job in a heartbeat; phase 0 queued, 1 pulling, 2 running."""

    call: int
    fence: int
    phase: int
    elapsed: float = 0.0
    bytes: int = 0


class ErrorReport(msgspec.Struct, frozen=True, array_like=True):
    """Why a job failed; texts alone, each cut at 64 KiB."""

    kind: str
    type_name: str = ""
    message: str = ""
    traceback: str = ""
    retryable: bool = False
    causes: list[str] = []


class Challenge(Message, frozen=True, array_like=True):
    code = 1
    nonce: bytes
    protocol_min: int = PROTOCOL
    protocol_max: int = PROTOCOL


class Auth(Message, frozen=True, array_like=True):
    code = 2
    worker: str
    session: int
    nonce: bytes
    protocol: int = PROTOCOL
    proof: bytes = b""


class Hello(Message, frozen=True, array_like=True):
    code = 3
    run: bytes | None
    worker: str
    session: int
    kernels: list[KernelOffer]
    slots: int = 1
    mem_total: int = 0
    mem_free: int = 0
    host_id: str = ""
    shm: bool = False
    devices: list[str] = []
    numeric: dict[str, str] = {}
    program: str | None = None
    max_jobs: int = 4
    shm_trial: str = ""


class Welcome(Message, frozen=True, array_like=True):
    code = 4
    run: bytes
    session: int
    proof: bytes = b""
    kernel_numbers: list[tuple[str, int]] = []
    limits: dict[str, int] = {}
    timers: dict[str, float] = {}
    task: str | None = None
    epoch: int | None = None


class Reject(Message, frozen=True, array_like=True):
    code = 5
    reason: str
    text: str = ""
    retry_after: float | None = None


class Heartbeat(Message, frozen=True, array_like=True):
    code = 6
    session: int
    number: int
    sent_at: float
    jobs: list[JobReport] = []
    unacked: list[tuple[int, int, int]] = []
    mem_free: int = 0
    cache_bytes: int = 0
    load: float = 0.0
    evicted: list[tuple[int, int]] = []


class HeartbeatAck(Message, frozen=True, array_like=True):
    code = 7
    number: int
    sent_at: float
    stop: list[tuple[int, int]] = []


class CallMessage(Message, frozen=True, array_like=True):
    code = 8
    lane = BULK
    call: int
    fence: int
    attempt: int
    kid: int
    params: dict[str, Any] = {}
    reads: list[BufferRef] = []
    writes: list[BufferRef] = []
    inline: int = 0
    time_limit: float | None = None
    priority: int = 0


class CallAck(Message, frozen=True, array_like=True):
    code = 9
    call: int
    fence: int
    verdict: str


class Pull(Message, frozen=True, array_like=True):
    code = 10
    transfer: int
    buf: int
    ver: int
    offset: int = 0


class Data(Message, frozen=True, array_like=True):
    code = 11
    lane = BULK
    transfer: int
    offset: int
    total: int
    digest: bytes | None = None
    segment: tuple[str, int] | None = None


class Gone(Message, frozen=True, array_like=True):
    code = 12
    transfer: int
    buf: int
    ver: int
    current: int = 0


class Result(Message, frozen=True, array_like=True):
    code = 13
    lane = BULK
    call: int
    fence: int
    status: str
    writes: list[BufferRef] = []
    timings: dict[str, float] = {}
    error: ErrorReport | None = None


class Fetch(Message, frozen=True, array_like=True):
    code = 14
    call: int
    fence: int
    transfer: int
    index: int
    offset: int = 0


class ResultAck(Message, frozen=True, array_like=True):
    code = 15
    call: int
    fence: int
    verdict: str


class Cancel(Message, frozen=True, array_like=True):
    code = 16
    call: int | None = None
    fence: int | None = None


class Evict(Message, frozen=True, array_like=True):
    code = 17
    copies: list[tuple[int, int]]


class Drain(Message, frozen=True, array_like=True):
    code = 18
    within: float = 0.0


class Bye(Message, frozen=True, array_like=True):
    code = 19
    reason: str = ""


class ErrorMessage(Message, frozen=True, array_like=True):
    code = 20
    reason: str
    seq: int = 0
    text: str = ""


class Returned(Message, frozen=True, array_like=True):
    code = 21
    transfers: list[int]


MESSAGES: tuple[type[Message], ...] = (
    Challenge, Auth, Hello, Welcome, Reject, Heartbeat, HeartbeatAck, CallMessage, CallAck, Pull,
    Data, Gone, Result, Fetch, ResultAck, Cancel, Evict, Drain, Bye, ErrorMessage, Returned,
)  # fmt: skip
