"""The Lua scripts, put together from their parts and named by digest (COORD-R01)."""

from __future__ import annotations

from functools import cache
from hashlib import sha1
from importlib.resources import files

import msgspec

_QUEUE = ("core", "guard", "queue")
_LEASES = (*_QUEUE, "leases")
_SESSIONS = (*_LEASES, "sessions")
_PUBLISH = (*_LEASES, "events_step", "publish_step")

_PARTS: dict[str, tuple[str, ...]] = {
    "hello": ("core",),
    "open_run": ("core",),
    "read_run": ("core",),
    "read_work_version": ("core", "guard"),
    "beat": ("core", "guard"),
    "send_signal": _QUEUE,
    "complete": _QUEUE,
    "enqueue": (*_SESSIONS, "claim_step", "serve_step"),
    "withdraw": _QUEUE,
    "claim": (*_SESSIONS, "claim_step"),
    "abandon_claim": (*_SESSIONS, "claim_step"),
    "release": _SESSIONS,
    "publish": _PUBLISH,
    "publish_and_claim": (*_SESSIONS, "claim_step", "events_step", "publish_step"),
    "read_outcome": ("core", "guard"),
    "active_leases": _LEASES,
    "requeue_expired": _SESSIONS,
    "register": _SESSIONS,
    "heartbeat": _SESSIONS,
    "expel": _SESSIONS,
    "read_workers": _SESSIONS,
    "read_feed": ("core", "guard"),
    "trim_feed": ("core", "guard"),
    "send_events": ("core", "guard", "events_step"),
    "receive_events": ("core", "guard"),
    "acknowledge_events": ("core", "guard"),
}

NAMES = tuple(_PARTS)


class Script(msgspec.Struct, frozen=True):
    """A script and the digest that the server knows it by."""

    name: str
    text: str
    digest: str


@cache
def script(name: str) -> Script:
    """Return a script by the name of its operation."""
    folder = files("towline.coordination.redis") / "lua"
    text = "\n".join((folder / f"{part}.lua").read_text(encoding="utf-8") for part in (*_PARTS[name], name))
    return Script(name, text, sha1(text.encode(), usedforsecurity=False).hexdigest())
