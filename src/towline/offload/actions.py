"""What a pure core asks its shell to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from towline.offload.frames import Frame
    from towline.offload.records import OffloadEvent


class Send(NamedTuple):
    """Queue a frame on a link."""

    link: int
    frame: Frame


class Close(NamedTuple):
    """Close a link, after what is queued on it."""

    link: int
    reason: str


class Trust(NamedTuple):
    """The peer of a link has proven itself: large messages are allowed from now on."""

    link: int


class Detach(NamedTuple):
    """Copy what links still have to send of a buffer: its memory is about to change (OFF-508)."""

    buffer: int


class Tell(NamedTuple):
    """Tell the listeners of the cluster."""

    event: OffloadEvent


Action: TypeAlias = Send | Close | Trust | Detach | Tell
