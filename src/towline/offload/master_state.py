"""What the master knows of links, sessions and calls, and the small things every layer does with it. Pure."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import TYPE_CHECKING

from towline.offload.actions import Action, Close, Send, Tell
from towline.offload.calls import REMOTE_PHASES, Call
from towline.offload.explain import Explanations
from towline.offload.frames import BODY_DIGEST, Frame
from towline.offload.handshake import Doorkeeper
from towline.offload.placing import Placer
from towline.offload.probing import Prober
from towline.offload.records import CallNumber, OffloadEvent, WorkerView

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from towline.offload.arrays import Array
    from towline.offload.messages import Message
    from towline.offload.options import OffloadOptions
    from towline.offload.policies import OffloadPolicy
    from towline.offload.regions import RegionPool
    from towline.offload.registry import KernelRegistry
    from towline.offload.scheduler import Scheduler
    from towline.offload.sessions import Dispatch, Peer, Session

REMEMBERED_ENDS = 4_096


class MasterState:
    """What the master knows; each layer above it adds one kind of event."""

    def __init__(
        self, scheduler: Scheduler, options: OffloadOptions, registry: KernelRegistry, policy: OffloadPolicy,
        random: Random, *, run: bytes, host_id: str = "", numeric: dict[str, str] | None = None, token: str = "",
        program: str | None = None, task: str | None = None, epoch: int | None = None, regions: RegionPool | None = None,
    ) -> None:  # fmt: skip
        self.scheduler, self.options, self.run = scheduler, options, run
        self._random, self._host_id, self._numeric, self._regions = random, host_id, numeric or {}, regions
        self.doorkeeper = Doorkeeper(
            run, options, registry, random, token=token, program=program, task=task, epoch=epoch
        )
        self.placer = Placer(scheduler, policy, options, random)
        self.placer.on_policy_error = self._policy_failed
        self.explanations = Explanations()
        self.placer.on_choice = self.explanations.choice
        self.prober = Prober(registry, options, random)
        self.peers: dict[int, Peer] = {}
        self.sessions: dict[int, Session] = {}
        self._names: dict[str, Session] = {}
        self._next_uid = 1
        self._next_transfer = 1
        self._landing: dict[int, list[Array]] = {}
        self._ended: OrderedDict[int, int] = OrderedDict()
        self._out: list[Action] = []
        self._last_tick: float | None = None
        self._remote_since: float | None = None
        self._warned: set[tuple[str, str]] = set()
        self.tick_s = options.heartbeat_interval_s / 4
        self.closing = False
        self.lost_lease: str | None = None
        self.rejected_frames = 0
        self.resent_results = 0
        self.bytes_sent = self.bytes_received = 0
        self.cache_hits = self.cache_misses = 0
        self.listeners: Sequence[object] | None = None
        """Who hears of events, if whoever carries them out has said so; nobody is told what nobody hears."""

    @property
    def has_actions(self) -> bool:
        """Whether anything is to be done."""
        return bool(self._out)

    def take(self) -> list[Action]:
        """Return what is to be done, and forget it."""
        out, self._out = self._out, []
        return out

    @property
    def in_flight(self) -> int:
        """Calls that workers have."""
        return sum(len(session.calls) for session in self._names.values())

    @property
    def live(self) -> int:
        """Workers that can be given calls."""
        return sum(session.state in ("live", "suspect") for session in self._names.values())

    @property
    def has_room(self) -> bool:
        """Whether any worker could take one more call."""
        return any(session.has_room for session in self._names.values())

    def views(self) -> tuple[WorkerView, ...]:
        """All living workers, by name."""
        return tuple(self._names[name].view() for name in sorted(self._names))

    def supports(self, kernel: str) -> bool:
        """Whether a live worker has the kernel, with an equal declaration."""
        return any(s.state in ("live", "suspect") and kernel in s.kernels for s in self._names.values())

    def _send(self, link: int, message: Message) -> None:
        self._out.append(Send(link, Frame(message)))

    def _send_bulk(self, session: Session, frame: Frame) -> None:
        session.peer.outgoing.queued(frame)
        self._out.append(Send(session.link, frame))

    def _tell(
        self,
        kind: str,
        now: float,
        session: Session | None,
        detail: dict[str, object] | None = None,
        call: Call | None = None,
    ) -> None:
        if self.listeners is not None and not self.listeners and kind != "warning":
            return  # two events per call would cost a tenth of it
        event = OffloadEvent(
            at=now, kind=kind, worker=session.worker if session is not None else None,
            session=session.number if session is not None else None,
            call=CallNumber(call.number) if call is not None else None,
            kernel=call.kernel_name if call is not None else None, detail=detail or {},
        )  # fmt: skip
        self._out.append(Tell(event))

    def _warn(self, kernel: str, reason: str, text: str, now: float, session: Session | None = None) -> None:
        if (kernel, reason) not in self._warned:
            self._warned.add((kernel, reason))
            self._tell("warning", now, session, {"kernel": kernel, "reason": reason, "text": text})

    def _policy_failed(self, call: Call, text: str) -> None:
        self._warn(call.kernel_name, "policy_error", text, self._last_tick or 0.0)

    def _digest_flag(self) -> int:
        return BODY_DIGEST if self.options.verify == "full" else 0

    def _current(self, session: Session, number: int, fence: int) -> Dispatch | None:
        """Return the dispatch that a message speaks of, if it is still the call's own (OFF-501)."""
        dispatch = session.calls.get(number)
        if dispatch is None or dispatch.fence != fence or dispatch.call.fence != fence:
            return None
        return dispatch if dispatch.call.phase in REMOTE_PHASES else None

    def _ended_with(self, number: int, fence: int) -> None:
        self._ended[number] = fence
        while len(self._ended) > REMEMBERED_ENDS:
            self._ended.popitem(last=False)

    def _forget(self, session: Session, dispatch: Dispatch) -> None:
        if session.calls.pop(dispatch.call.number, None) is not None:
            session.backlog_s -= dispatch.call.expected_s

    def _part(self, session: Session, reason: str) -> None:
        self.peers.pop(session.link, None)
        self._landing.pop(session.link, None)
        if self._names.get(session.worker) is session:
            del self._names[session.worker]
        del self.sessions[session.uid]
        if self._regions is not None:
            self._regions.staging.session_ended(session.uid)
        self._out.append(Close(session.link, reason))


def finite_seconds(value: float) -> float:
    """Take seconds from a worker; what cannot be a duration counts as none."""
    return value if math.isfinite(value) and value >= 0 else 0.0
