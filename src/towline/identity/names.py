"""Module names, task ids and their keys, and the file segments made of them (MOD-04, PLAN-07, STATE-05)."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

TaskId = str
"""``module`` or ``module[key]``. Nothing parses one: the plan keeps module and key beside it."""

MODULE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.()=, -]{0,119}\Z")
"""MOD-04."""

NODE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")
"""Run ids and worker ids (``coordination.md`` section 2)."""

KEY_LIMIT = 128
"""Longest text of one key before encoding, in characters (PLAN-07)."""

# Texts, which ``re`` compiles when they are first used: a start that needs none saves a millisecond.
_KEY_UNSAFE = r"[\x00-\x1f\x7f-\x9f\[\]%,\ud800-\udfff]"
_SEGMENT_UNSAFE = r"[^A-Za-z0-9._\-\[\]]"
_WINDOWS_DEVICE = r"(?i)(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?\Z"
_SEGMENT_LIMIT, _SEGMENT_KEPT = 150, 100


def _percent(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match.group().encode("utf-8", "surrogatepass"))


def encode_key(text: str) -> str:
    """Return a key part as it stands in a task id: control characters and ``[ ] % ,`` percent-encoded.

    Raises:
        ValueError: The text is empty or longer than 128 characters.
    """
    if not 1 <= len(text) <= KEY_LIMIT:
        raise ValueError(f"a key has 1 to {KEY_LIMIT} characters, this one has {len(text)}")
    return re.sub(_KEY_UNSAFE, _percent, text)


def task_id(module: str, key: str | None = None) -> TaskId:
    """Join a module name and an encoded key to the id of a task."""
    return module if key is None else f"{module}[{key}]"


def segment(name: str) -> str:
    """Turn a task id or step name into one file name that is safe on every system (STATE-05).

    Distinct names give distinct segments. All but ``A-Z a-z 0-9 . _ - [ ]`` is percent-encoded, as are a
    leading or trailing dot and the first letter of a Windows device name; above 150 bytes the first 100
    are kept, with ``~`` and 16 hex digits of the name's SHA-256.
    """
    text = re.sub(_SEGMENT_UNSAFE, _percent, name)
    if text.startswith("."):
        text = "%2E" + text[1:]
    if text.endswith("."):
        text = text[:-1] + "%2E"
    if re.match(_WINDOWS_DEVICE, text):
        text = f"%{ord(text[0]):02X}{text[1:]}"
    if len(text) > _SEGMENT_LIMIT:
        digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        text = f"{text[:_SEGMENT_KEPT]}~{digest}"
    return text


def new_run_id(now: float, random: Random) -> str:
    """Make a run id that sorts by its moment: ``r-20260301-100000-9f3a``."""
    from datetime import UTC, datetime

    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y%m%d-%H%M%S")
    return f"r-{stamp}-{random.getrandbits(16):04x}"


def suggestion(wrong: str, known: Iterable[str]) -> str:
    """Return `` Did you mean 'x'?`` for the nearest known name, or an empty text."""
    import difflib  # only a mistake needs it

    near = difflib.get_close_matches(wrong, list(known), n=1, cutoff=0.6)
    return f" Did you mean {near[0]!r}?" if near else ""
