"""``towline cancel`` of a run whose state lies on a server: a request that its owner finds there (CTL-28)."""

from __future__ import annotations

import asyncio
import os
import platform
from typing import TYPE_CHECKING, NamedTuple

from towline.errors.configuration import CancelError
from towline.state.redis_cancel import read_holder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from towline.cli.servers import OnServer
    from towline.state.redis_store import RedisStateStore

POLL_S = 0.25
"""How often the server is asked whether the run still holds its plan."""


class Held(NamedTuple):
    """A state that somebody owns. ``record``: of the owner, as it stands on the server."""

    place: OnServer
    record: bytes

    @property
    def run_id(self) -> str:
        """The run of the owner; its record where that cannot be read."""
        holder = read_holder(self.record)
        return holder.run_id if holder is not None else self.record.decode("utf-8", "backslashreplace")

    @property
    def words(self) -> str:
        """The run, with its process and host."""
        holder = read_holder(self.record)
        return f"{self.run_id} (pid {holder.pid} on {holder.host})" if holder is not None else self.run_id


def cancel_on_server(state: str, places: Sequence[OnServer], run_id: str | None, *, wait_s: float) -> str:
    """Ask the owner of one of these states to end its run, and wait until it has; returns the id of the run.

    Args:
        state: What the caller named, without a password.
        places: Where the run may be; the one that is owned, by this run if one is named.

    Raises:
        CancelError: Nothing runs there, another run does, several do, or it did not end within ``wait_s`` seconds.
        StateError: The server cannot be asked.
    """
    held = [Held(one, record) for one in places if (record := one.ask(lambda store: store.holder())) is not None]
    if not held:
        raise CancelError(state, "nothing runs there")
    meant = [one for one in held if run_id in (None, one.run_id)]
    running = ", ".join(f"{one.run_id} of {one.place.pipeline}" for one in held)
    if not meant:
        raise CancelError(state, f"{running} runs there, not {run_id}")
    if len(meant) > 1:
        raise CancelError(state, f"{running} run there: name one with --pipeline")
    [one] = meant
    if not one.place.ask(lambda store: _ask_and_wait(store, one.record, wait_s)):
        raise CancelError(state, f"{one.words} was told to stop and has not ended within {wait_s:g} s")
    return one.run_id


async def _ask_and_wait(store: RedisStateStore, record: bytes, wait_s: float) -> bool:
    """Leave the request and wait until this owner has given its plan back; says whether it did."""
    try:
        async with asyncio.timeout(wait_s):
            if await store.ask_to_cancel(record, f"process {os.getpid()} on {platform.node()}"):
                # A key that goes tells nobody.
                while await store.holder() == record:  # noqa: ASYNC110
                    await asyncio.sleep(POLL_S)
    except TimeoutError:
        return False
    return True
