"""What a transport gives: links that carry frames. The seam between the protocol and a network (section 3)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

from towline.errors.offload import FrameError
from towline.offload.frames import Frame, Head, encode
from towline.offload.messages import BULK
from towline.offload.reader import SCRATCH_BYTES, FrameReader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class LinkOwner(Protocol):
    """Who a link tells what happens on it."""

    def body_for(self, head: Head) -> Sequence[memoryview] | None:
        """Say where the body of a frame goes; None: it is read and dropped."""
        ...

    def on_frame(self, head: Head, landed: bool) -> None:
        """Take a whole frame."""
        ...

    def on_bytes(self, count: int) -> None:
        """Note that bytes arrived, of whole frames or not."""
        ...

    def on_flushed(self, frame: Frame) -> None:
        """Note that a bulk frame has left this process."""
        ...

    def on_broken(self, error: FrameError) -> None:
        """Note that the peer sent bytes that are no valid frame. The owner closes the link."""
        ...

    def on_down(self, reason: str) -> None:
        """Note that the link is closed; called once, and last."""
        ...


class Link(Protocol):
    """One connection. Frames leave in the order in which they were queued, control before bulk."""

    @property
    def peer(self) -> str:
        """Address of the other end, for people."""
        ...

    @property
    def queued_bytes(self) -> int:
        """Body bytes that have not left yet."""
        ...

    def bind(self, owner: LinkOwner) -> None:
        """Name the owner, before the first byte arrives."""
        ...

    def trust(self) -> None:
        """The peer has proven itself: large messages are read from now on."""
        ...

    def send(self, frame: Frame) -> None:
        """Queue a frame. Its body must keep its bytes until it is flushed, or detached."""
        ...

    def detach(self, pin: int) -> None:
        """Copy what is queued of one buffer, because its memory is about to change."""
        ...

    def close(self, reason: str) -> None:
        """Send what is queued of the control lane, as far as it goes at once, and close."""
        ...


class Transport(Protocol):
    """Makes links, by listening or by dialling."""

    async def start(self, on_link: Callable[[Link], None]) -> None:
        """Begin to make links; raises ``OSError`` where that cannot be."""
        ...

    async def close(self) -> None:
        """Make no more links and close those that are there."""
        ...


class Outbox:
    """Frames that wait for their turn: control before bulk, numbered as they leave (OFF-705)."""

    def __init__(self) -> None:
        self._lanes: tuple[deque[Frame], deque[Frame]] = (deque(), deque())
        self._seq = 0
        self.queued_bytes = 0
        self.high_water = 0

    def put(self, frame: Frame) -> None:
        """Queue a frame."""
        self._lanes[frame.message.lane].append(frame)
        if frame.body_bytes:
            self.queued_bytes += frame.body_bytes
            self.high_water = max(self.high_water, self.queued_bytes)

    def next(self) -> tuple[Frame, list[memoryview]] | None:
        """Take the next frame with its bytes, or None."""
        control, bulk = self._lanes
        if not (control or bulk):
            return None
        frame = control.popleft() if control else bulk.popleft()
        self._seq += 1
        return frame, encode(frame, self._seq - 1)

    @property
    def holds_bulk(self) -> bool:
        """Whether a bulk frame waits."""
        return bool(self._lanes[BULK])

    def left(self, frame: Frame) -> bool:
        """Count a frame as sent; True if its owner wants to know."""
        self.queued_bytes -= frame.body_bytes
        return frame.message.lane == BULK

    def detach(self, pin: int) -> None:
        """Give the queued frames of one buffer bytes of their own."""
        for frame in self._lanes[BULK]:
            if pin in frame.pin:
                frame.body = tuple(memoryview(bytes(part)) for part in frame.body)
                frame.pin = ()

    def clear(self, *, keep_control: bool = False) -> None:
        """Drop what waits."""
        self._lanes[BULK].clear()
        if not keep_control:
            self._lanes[0].clear()

    def __bool__(self) -> bool:
        return bool(self._lanes[0] or self._lanes[1])


class Inbox:
    """The reading half of a link: bytes to frames, and what is wrong with them to the owner."""

    def __init__(self, owner: LinkOwner, peer: str, scratch_bytes: int = SCRATCH_BYTES) -> None:
        self._owner, self._peer = owner, peer
        self.reader = FrameReader(owner, scratch_bytes)
        self.broken = False

    def received(self, count: int, into: memoryview) -> None:
        """Take bytes that were put into ``reader.buffer()``."""
        if self.broken:
            return
        self._owner.on_bytes(count)
        try:
            self.reader.received(count, into)
        except FrameError as error:
            self.broken = True
            self._owner.on_broken(FrameError(error.offset, error.field, error.problem, self._peer))

    def feed(self, data: bytes | memoryview) -> None:
        """Take bytes that are in memory already."""
        view = memoryview(data)
        while view.nbytes and not self.broken:
            into = self.reader.buffer()
            count = min(into.nbytes, view.nbytes)
            into[:count] = view[:count]
            view = view[count:]
            self.received(count, into)
