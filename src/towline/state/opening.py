"""Find the state store that a URL names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from towline.errors.state import StateUnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from towline.clock import Clock
    from towline.state.store import StateStore

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]+):")  # two letters at least: "C:" is a drive


def open_store(
    url: str,
    *,
    durability: Literal["process", "power"] = "process",
    clock: Clock | None = None,
    others: Mapping[str, Callable[[str], StateStore]] | None = None,
) -> StateStore:
    """Open the state store of one pipeline.

    Args:
        url: A folder, or ``memory:``.
        others: Stores of other schemes, by scheme, each called with the whole URL.

    Raises:
        StateUnsupportedError: No store is known for the scheme.
    """
    match = _SCHEME.match(url)
    scheme = match.group(1) if match else ""
    if others and scheme in others:
        return others[scheme](url)
    if scheme == "":
        from towline.state.directory import DirectoryStore

        return DirectoryStore(url, durability=durability, clock=clock)
    if scheme == "memory":
        from towline.state.memory import MemoryStore

        return MemoryStore(clock)
    known = ", ".join(f"{other}://" for other in others or ())
    raise StateUnsupportedError(f"{scheme}:", f"state can lie in a folder, in memory:{known and f' or on {known}'}")
