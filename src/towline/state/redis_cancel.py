"""What the owner of a plan on Redis says of itself, and how others ask it to end its run (CTL-28). Pure."""

from __future__ import annotations

import msgspec


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds a plan, as its key says. ``token`` tells two holders of one name apart."""

    id: str
    host: str
    pid: int
    run_id: str
    since: str
    token: str = ""


class CancelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to one holder, by its token: whoever holds the plan after it is not meant. ``by``: who asks."""

    token: str
    by: str


def read_holder(data: bytes) -> Holder | None:
    """Read the record of a holder; ``None`` when it is no such record."""
    try:
        return msgspec.json.decode(data, type=Holder)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def asked_by(request: bytes, holder: bytes) -> str | None:
    """Return who asks this holder to end its run; ``None`` when nobody does. What cannot be read asks nothing."""
    if not request:
        return None
    try:
        read = msgspec.json.decode(request, type=CancelRequest)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    own = read_holder(holder)
    return read.by if own is not None and own.token and read.token == own.token else None
