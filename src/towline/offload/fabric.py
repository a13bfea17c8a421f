"""Master and workers in one process: every frame is encoded, split anywhere, and decoded (OFF-702)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from towline.offload.frames import Frame, encode
from towline.offload.links import Inbox, Link, LinkOwner, Outbox, Transport

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from towline.offload.timers import Timers

FABRIC_SCRATCH = 8 * 1024


class FaultPlan(Protocol):
    """What a network does to frames; the default does nothing."""

    def fate(self, link: int, direction: str, nth: int, frame: Frame, now: float) -> list[float] | None:
        """Return the delays after which copies of the frame arrive: none, one, two; None: the link breaks."""
        ...

    def mangle(self, link: int, direction: str, nth: int, data: bytes) -> bytes:
        """Return the bytes of a numbered frame as they arrive: corrupted, cut short, or unchanged."""
        ...


class InProcessFabric:
    """A network inside one process.

    Frames take no time unless a plan says so. Loss and repetition happen above numbering, so that a lost
    frame is never numbered; the bytes arrive split at positions that ``random`` picks.
    """

    def __init__(self, random: Random, plan: FaultPlan | None = None, *, timers: Timers | None = None) -> None:
        self.random, self.plan = random, plan
        self._timers = timers
        self._accept: Callable[[Link], None] | None = None
        self._links = 0
        self.open: list[tuple[FabricLink, FabricLink, str]] = []

    @property
    def timers(self) -> Timers:
        """The loop that carries frames."""
        return self._timers or asyncio.get_running_loop()

    def master(self) -> Transport:
        """Return the end that accepts."""
        return _MasterEnd(self)

    def worker(self, name: str) -> Transport:
        """Return an end that dials."""
        return _WorkerEnd(self, name)

    def accept(self, on_link: Callable[[Link], None] | None) -> None:
        """Say who gets the links that workers dial; None: nobody, dialling is refused."""
        self._accept = on_link

    def dial(self, name: str, on_link: Callable[[Link], None]) -> None:
        """Make a link. Raises ``ConnectionRefusedError`` when no master listens."""
        if self._accept is None:
            raise ConnectionRefusedError(f"no master listens for {name}")
        number = self._links
        self._links += 1
        here = FabricLink(self, number, "to master", name)
        there = FabricLink(self, number, "to worker", name)
        here.other, there.other = there, here
        self.open.append((here, there, name))
        on_link(here)
        self._accept(there)

    def cut(self, name: str, reason: str = "cut") -> None:
        """Break every link of a worker, both ends at once."""
        for here, there, owner in list(self.open):
            if owner == name:
                here.break_off(reason)
                there.break_off(reason)


class FabricLink:
    """One end of a link. ``direction`` is where its frames go."""

    def __init__(self, fabric: InProcessFabric, number: int, direction: str, name: str) -> None:
        self.fabric, self.number, self.direction, self.name = fabric, number, direction, name
        self._timers = fabric.timers
        self.other: FabricLink | None = None
        self._outbox = Outbox()
        self._inbox: Inbox | None = None
        self._owner: LinkOwner | None = None
        self._pumping = False
        self._nth = 0
        self._seq = 0
        self.up = True

    @property
    def peer(self) -> str:
        """Name of the other end."""
        return f"in-process {self.direction} {self.name}"

    @property
    def queued_bytes(self) -> int:
        """Body bytes that have not left yet."""
        return self._outbox.queued_bytes

    def bind(self, owner: LinkOwner) -> None:
        """Name the owner."""
        self._owner = owner
        self._inbox = Inbox(owner, self.peer, FABRIC_SCRATCH)

    def trust(self) -> None:
        """Read large messages."""
        if self._inbox is not None:
            self._inbox.reader.max_meta = 1 << 20

    def send(self, frame: Frame) -> None:
        """Queue a frame; it leaves when the loop comes round."""
        if not self.up:
            return
        self._outbox.put(frame)
        if not self._pumping:
            self._pumping = True
            self._timers.call_soon(self._pump)

    def detach(self, pin: int) -> None:
        """Copy what is queued of one buffer."""
        self._outbox.detach(pin)

    def close(self, reason: str) -> None:
        """Send what is queued, then close both ends."""
        if self.up:
            self._pump(closing=True)
            self.break_off(reason)
            if self.other is not None:
                # Behind the frames that are on their way already: callbacks run in the order they were asked for.
                self._timers.call_soon(self.other.break_off, reason)

    def break_off(self, reason: str) -> None:
        """The link is gone, now, on this side."""
        if not self.up:
            return
        self.up = False
        self._outbox.clear()
        self.fabric.open = [entry for entry in self.fabric.open if entry[0].up or entry[1].up]
        if self._owner is not None:
            self._owner.on_down(reason)

    def _pump(self, closing: bool = False) -> None:
        """Let the queued frames leave. They arrive in this turn, but those of a link that its owner closes just now."""
        self._pumping = False
        timers, plan = self._timers, self.fabric.plan
        while self.up and self._outbox:
            lanes = self._outbox._lanes
            frame = (lanes[0] or lanes[1])[0]
            now = timers.time()
            fate = [0.0] if plan is None else plan.fate(self.number, self.direction, self._nth, frame, now)
            self._nth += 1
            if fate is None:
                self._outbox.next()
                self._sent(frame)
                self.break_off("reset")
                if self.other is not None:
                    self.other.break_off("reset")
                return
            taken = (lanes[0] or lanes[1]).popleft()
            assert taken is frame
            for delay in fate:
                if delay > 0:
                    # Held above numbering: what is sent meanwhile overtakes it, as with a network that reorders.
                    held = Frame(
                        frame.message, tuple(memoryview(bytes(part)) for part in frame.body), flags=frame.flags
                    )
                    timers.call_at(now + delay, self._emit, held)
                else:
                    self._emit(frame, soon=closing)
            self._sent(frame)

    def _emit(self, frame: Frame, soon: bool = False) -> None:
        if not self.up or self.other is None:
            return
        data = b"".join(encode(frame, self._seq))
        self._seq += 1
        if self.fabric.plan is not None:
            data = self.fabric.plan.mangle(self.number, self.direction, self._seq, data)
        if soon:
            self._timers.call_soon(self.other.arrive, data)
        else:
            self.other.arrive(data)

    def arrive(self, data: bytes) -> None:
        """Bytes are here: hand them over in pieces."""
        view = memoryview(data)
        cut = 1 + int(self.fabric.random.random() * (len(view) - 1))
        for piece in (view[:cut], view[cut:]):
            if self.up and self._inbox is not None and piece.nbytes:
                self._inbox.feed(piece)

    def _sent(self, frame: Frame) -> None:
        if self._outbox.left(frame) and self._owner is not None and self.up:
            self._owner.on_flushed(frame)


class _MasterEnd:
    def __init__(self, fabric: InProcessFabric) -> None:
        self._fabric = fabric

    async def start(self, on_link: Callable[[Link], None]) -> None:
        self._fabric.accept(on_link)

    async def close(self) -> None:
        self._fabric.accept(None)


class _WorkerEnd:
    def __init__(self, fabric: InProcessFabric, name: str) -> None:
        self._fabric, self._name = fabric, name

    async def start(self, on_link: Callable[[Link], None]) -> None:
        self._fabric.dial(self._name, on_link)

    async def close(self) -> None:
        self._fabric.cut(self._name, "closed")
