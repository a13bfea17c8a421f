"""One worker as the master sees it (section 5): its state, its calls, what it is thought to hold. Pure."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from towline.offload.records import SessionState, WorkerId, WorkerView

if TYPE_CHECKING:
    from towline.offload.arrays import Array
    from towline.offload.calls import Call
    from towline.offload.messages import Hello
    from towline.offload.outgoing import Outgoing
    from towline.offload.regions import Region

LIVING = ("joining", "probing", "live", "suspect", "draining")
OFFERABLE = "live"
UNMEASURED_BYTES_PER_S = 100e6
"""What bandwidth is taken to be before it was measured (OFF-405)."""
QUICK_BACKLOG_S = 0.005
"""Expected work per slot below which a worker is given more calls than it needs to keep its slots busy (OFF-411)."""


def estimate_s(
    rtt_s: float,
    missing_bytes: int,
    up_bytes_per_s: float,
    output_bytes: int,
    down_bytes_per_s: float,
    backlog_s: float,
) -> float:
    """Estimate when a worker would have returned a call, kernel time left out; bandwidth 0.0 is not measured."""
    up, down = up_bytes_per_s or UNMEASURED_BYTES_PER_S, down_bytes_per_s or UNMEASURED_BYTES_PER_S
    return rtt_s + missing_bytes / up + output_bytes / down + backlog_s


class Dispatch:
    """One call as one worker was given it."""

    __slots__ = (
        "alone",
        "arrays",
        "call",
        "fence",
        "fetch_at",
        "fetch_tries",
        "fetched",
        "flushed_at",
        "hits",
        "listed_bytes",
        "misses",
        "moved_at",
        "regions",
        "sent_at",
        "touched_at",
        "transfers",
    )  # fmt: skip

    def __init__(self, call: Call, fence: int, now: float, *, alone: bool) -> None:
        self.call, self.fence, self.alone = call, fence, alone
        self.sent_at = self.touched_at = now
        self.flushed_at: float | None = None
        self.misses = 0
        self.hits = 0
        self.listed_bytes = -1
        self.arrays: list[Array] = []
        self.fetched: list[int] = []
        self.transfers: list[int] = []
        self.fetch_tries = 0
        self.fetch_at = self.moved_at = now
        self.regions: list[Region | None] = []


class Peer:
    """One link, from the moment it is up; ``session`` is set by a valid HELLO."""

    __slots__ = (
        "authenticated",
        "greeted_at",
        "link",
        "name",
        "nonce",
        "number",
        "opened_at",
        "outgoing",
        "peer",
        "session",
    )

    def __init__(self, link: int, peer: str, nonce: bytes, outgoing: Outgoing, now: float) -> None:
        self.link, self.peer, self.nonce, self.outgoing = link, peer, nonce, outgoing
        self.opened_at = self.greeted_at = now
        self.authenticated: bytes | None = None
        self.name = ""
        self.number = 0
        self.session: Session | None = None


class Session:
    """A worker that said HELLO. Identity is (name, session number); it lives on one link."""

    def __init__(self, uid: int, peer: Peer, hello: Hello, now: float) -> None:
        self.uid = uid
        self.peer = peer
        self.link = peer.link
        self.worker = WorkerId(hello.worker)
        self.number = hello.session
        self.state: SessionState = "joining"
        self.kernels: dict[str, int] = {}
        self.other_kernels: dict[str, str] = {}
        self.refused_kernels: dict[str, str] = {}
        self.slots = max(1, min(hello.slots, 4096))
        self.max_jobs = max(1, min(hello.max_jobs, 65_536))
        self.window = min(self.max_jobs, max(4, 2 * self.slots))
        self.mem_total, self.mem_free = hello.mem_total, hello.mem_free
        self.host_id, self.devices, self.numeric = hello.host_id, tuple(hello.devices), dict(hello.numeric)
        self.shm = "off"
        self.same_numeric = True
        self.last_bytes_at = now
        self.joined_at = now
        self.calls: dict[int, Dispatch] = {}
        self.beat = -1
        self.full = False
        self.running = self.queued = 0
        self.cache_bytes = 0
        self.load = 0.0
        self.rtt_s = 0.0
        self.up = self.down = 0.0
        self.backlog_s = 0.0
        self.recent_failures = 0
        self.resident: OrderedDict[tuple[int, int], int] = OrderedDict()
        self.resident_bytes = 0
        self.probes: dict[int, str] = {}
        self.probe_at = self.echo_at = now
        self.reason = ""

    @property
    def living(self) -> bool:
        """Whether frames of it still count."""
        return self.state in LIVING

    @property
    def has_room(self) -> bool:
        """Whether it may be given one more call now.

        A few calls ahead keep its slots busy; more of them would only keep other workers idle, unless they are so
        short that the way to the worker and back takes longer than all of them.
        """
        held = len(self.calls)
        if self.state != OFFERABLE or self.full or held >= self.max_jobs:
            return False
        return held < self.window or self.backlog_s < QUICK_BACKLOG_S * self.slots

    def holds(self, buffer: int, version: int) -> bool:
        """Say whether its cache is thought to have this copy."""
        return (buffer, version) in self.resident

    def keep(self, buffer: int, version: int, size: int) -> None:
        """Note a copy that it has from now on; the oldest notes go when they exceed what it can hold."""
        key = (buffer, version)
        if key in self.resident:
            self.resident.move_to_end(key)
            return
        self.resident[key] = size
        self.resident_bytes += size
        limit = self.mem_total // 4 or 4 << 30
        while self.resident_bytes > limit or len(self.resident) > 100_000:
            self.lose(*next(iter(self.resident)))

    def lose(self, buffer: int, version: int) -> None:
        """Note that a copy is gone."""
        self.resident_bytes -= self.resident.pop((buffer, version), 0)

    def measure_rtt(self, seconds: float) -> None:
        """Take a measured round trip in, weight 1/8."""
        self.rtt_s = seconds if self.rtt_s == 0 else self.rtt_s + (seconds - self.rtt_s) / 8

    def measure_down(self, bytes_per_s: float) -> None:
        """Take a measured bandwidth from the worker in, weight 1/4 (OFF-422)."""
        self.down = bytes_per_s if self.down == 0 else self.down + (bytes_per_s - self.down) / 4

    def measure_up(self, bytes_per_s: float) -> None:
        """Take a measured bandwidth to the worker in, weight 1/4."""
        self.up = bytes_per_s if self.up == 0 else self.up + (bytes_per_s - self.up) / 4
        self.peer.outgoing.bandwidth = self.up

    def completion_s(self, missing_bytes: int, output_bytes: int) -> float:
        """Estimate when it would have returned a call (OFF-405)."""
        backlog_s = max(self.backlog_s, 0.0) / self.slots if self.calls else 0.0
        return estimate_s(self.rtt_s, missing_bytes, self.up, output_bytes, self.down, backlog_s)

    def view(self) -> WorkerView:
        """Return what policies and people see."""
        return WorkerView(
            worker=self.worker, session=self.number, state=self.state, kernels=tuple(self.kernels), host_id=self.host_id,
            slots=self.slots, running=max(self.running, 0), queued=max(self.queued, 0), in_flight=len(self.calls),
            mem_free=self.mem_free, mem_total=self.mem_total, cache_bytes=self.cache_bytes, rtt_s=self.rtt_s,
            up_bytes_per_s=self.up, down_bytes_per_s=self.down, load=self.load,
            backlog_s=max(self.backlog_s, 0.0) if self.calls else 0.0, recent_failures=self.recent_failures,
            last_seen_at=self.last_bytes_at, resident=self.resident_bytes, devices=self.devices, numeric=self.numeric,
            shm=self.shm,
        )  # fmt: skip
