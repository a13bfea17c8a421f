"""One session with one master, as a worker sees it, and what its core asks the shell to do. Pure."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from towline.offload.actions import Close, Send, Trust

if TYPE_CHECKING:
    from towline.offload.jobs import Job
    from towline.offload.messages import (
        Auth,
    )
    from towline.offload.outgoing import Outgoing
    from towline.offload.pieces import ArrayPlan, Piece

REMEMBERED_ENDS = 4_096
INLINE_RESULT_LIMIT = 4 << 20


class Connect(NamedTuple):
    """Dial the master at this moment."""

    at: float


class StartKernel(NamedTuple):
    """Run a job's kernel; its inputs are there, its outputs are to be made."""

    job: Job


class StopKernel(NamedTuple):
    """Stop a running job: nobody wants its result."""

    job: Job


class EndAgent(NamedTuple):
    """Stop serving."""

    code: int
    reason: str


WorkerAction = Send | Close | Trust | Connect | StartKernel | StopKernel | EndAgent


class Incoming:
    """One copy on its way in; the jobs that wait for it share it (OFF-513).

    ``piece`` is None until bytes come: where a segment comes instead, no memory was taken for nothing.
    """

    __slots__ = ("buffer", "jobs", "nbytes", "number", "offset", "piece", "touched_at", "tries", "version")

    def __init__(self, number: int, buffer: int, version: int, nbytes: int, now: float) -> None:
        self.number, self.buffer, self.version, self.nbytes = number, buffer, version, nbytes
        self.piece: Piece | None = None
        self.offset = 0
        self.tries = 0
        self.touched_at = now
        self.jobs: list[tuple[Job, int]] = []


class Bond:
    """One session with one master, seen from here: ``greeting``, ``active``, ``draining``, ``ended``."""

    def __init__(self, link: int, session: int, nonce: bytes, outgoing: Outgoing, now: float, retry_s: float) -> None:
        self.link, self.session, self.nonce, self.outgoing = link, session, nonce, outgoing
        self.phase = "greeting"
        self.challenged = False
        self.run = b""
        self.task: str | None = None
        self.epoch: int | None = None
        self.kernels: dict[int, str] = {}
        self.offers: list[str] = []
        self.auth: Auth | None = None
        self.opened_at = self.heard_at = now
        self.greet_at = now + retry_s
        self.retry_s = retry_s
        self.beat_at = now
        self.beat = 0
        self.jobs: dict[int, Job] = {}
        self.done: OrderedDict[int, int] = OrderedDict()
        self.incoming: dict[int, Incoming] = {}
        self.rtt_s = 0.0
        self.timers = {
            "heartbeat_interval_s": 1.0,
            "liveness_timeout_s": 5.0,
            "result_resend_s": 2.0,
            "pull_timeout_s": 5.0,
        }
        self.offer_bytes = 1 << 20
        self.max_buffer_bytes = 8 << 30
        self.pull_tries = 3
        self.digests = False
        self.shares = False
        self.landing: list[tuple[ArrayPlan, Piece]] = []
        self.drain_by: float | None = None
