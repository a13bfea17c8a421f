"""Between links and a core: link numbers one way, frames and closings the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from towline.offload.actions import Close, Send, Trust

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from towline.errors.offload import FrameError
    from towline.offload.frames import Frame, Head
    from towline.offload.links import Link


class Core(Protocol):
    """What the two halves of the protocol have in common."""

    @property
    def has_actions(self) -> bool: ...
    def body_for(self, link: int, head: Head, now: float) -> Sequence[memoryview] | None: ...
    def frame(self, link: int, head: Head, landed: bool, now: float) -> None: ...
    def bytes_in(self, link: int, count: int, now: float) -> None: ...
    def flushed(self, link: int, frame: Frame, now: float) -> None: ...
    def broken(self, link: int, error: FrameError, now: float) -> None: ...
    def link_down(self, link: int, reason: str, now: float) -> None: ...


class Links:
    """The links of one core, by number."""

    def __init__(self, core: Core, time: Callable[[], float], changed: Callable[[], None]) -> None:
        self._core, self._time, self._changed = core, time, changed
        self._links: dict[int, Link] = {}
        self._next = 1

    def add(self, link: Link) -> int:
        """Give a link a number; its events reach the core from now on."""
        number = self._next
        self._next += 1
        self._links[number] = link
        link.bind(_Port(self, number))
        return number

    def carry_out(self, action: Send | Close | Trust) -> None:
        """Do what the core asked of a link; one that is gone already is no error."""
        link = self._links.get(action.link)
        if link is None:
            return
        if isinstance(action, Send):
            link.send(action.frame)
        elif isinstance(action, Close):
            link.close(action.reason)
        else:
            link.trust()

    def detach(self, pin: int) -> None:
        """Have every link copy what it still has to send of a buffer."""
        for link in self._links.values():
            link.detach(pin)

    def close(self, reason: str) -> None:
        """Close all links."""
        for link in list(self._links.values()):
            link.close(reason)


class _Port:
    """The owner of one link: adds its number and the time."""

    __slots__ = ("_changed", "_core", "_links", "_number", "_time")

    def __init__(self, links: Links, number: int) -> None:
        self._links, self._number = links, number
        self._core, self._time, self._changed = links._core, links._time, links._changed

    def body_for(self, head: Head) -> Sequence[memoryview] | None:
        return self._core.body_for(self._number, head, self._time())

    def on_frame(self, head: Head, landed: bool) -> None:
        self._core.frame(self._number, head, landed, self._time())
        self._changed()

    def on_bytes(self, count: int) -> None:
        self._core.bytes_in(self._number, count, self._time())

    def on_flushed(self, frame: Frame) -> None:
        self._core.flushed(self._number, frame, self._time())
        if self._core.has_actions:  # mostly there is nothing more to send: no turn of the loop for that
            self._changed()

    def on_broken(self, error: FrameError) -> None:
        self._core.broken(self._number, error, self._time())
        self._changed()

    def on_down(self, reason: str) -> None:
        if self._links._links.pop(self._number, None) is not None:
            self._core.link_down(self._number, reason, self._time())
            self._changed()
