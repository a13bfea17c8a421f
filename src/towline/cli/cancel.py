"""``towline cancel``: stop the run that owns a state, in a folder of this host or on a server (CTL-28)."""

from __future__ import annotations

import asyncio
import os
import platform
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from towline.cli.cancel_on_server import cancel_on_server
from towline.cli.owners import living_owner
from towline.cli.reachability import without_password
from towline.cli.results import write_result
from towline.cli.servers import elsewhere, is_server, states_on
from towline.errors.configuration import CancelError

if TYPE_CHECKING:
    from towline.state.owner_file import OwnerRecord

POLL_S = 0.05
"""How often it is looked whether the run has let go of its state."""


def cancel_run(state: str, pipeline: str | None, run_id: str | None, task: str | None, *, wait_s: float) -> int:
    """Tell the run that owns a state to stop, and wait until it has let go; returns 0.

    Raises:
        CancelError: Nothing runs there, another run does, the owner is on another host, or it did not end
            within ``wait_s`` seconds.
        StateError: The server cannot be asked.
    """
    shown = without_password(state)
    if task is not None:
        raise CancelError(shown, "one task alone cannot be cancelled yet: that needs a control plane")
    write_result(
        [f"{_cancel(state, shown, pipeline, run_id, wait_s)} has stopped; run it again with --resume to go on"]
    )
    return 0


def _cancel(state: str, shown: str, pipeline: str | None, run_id: str | None, wait_s: float) -> str:
    if is_server(state):
        return cancel_on_server(shown, states_on(state, pipeline), run_id, wait_s=wait_s)
    if "://" in state:
        detail = (
            "there is no control plane yet; give the state folder of the run, or the redis:// URL that has its state"
        )
        raise CancelError(shown, detail)
    root = Path(state)
    if not root.is_dir():
        raise CancelError(state, "there is no such folder")
    server = elsewhere(root)
    if server is not None:
        return cancel_on_server(shown, [server], run_id, wait_s=wait_s)
    return _cancel_in_folder(root, state, run_id, wait_s)


def _cancel_in_folder(root: Path, state: str, run_id: str | None, wait_s: float) -> str:
    """Send SIGINT to the owner of a state folder; returns the id of its run."""
    owner = _owner(root, state, run_id)
    try:
        os.kill(owner.pid, signal.SIGINT)
    except PermissionError as error:
        detail = f"{owner.run_id} (pid {owner.pid}) belongs to another user: cancel it as that one"
        raise CancelError(state, detail) from error
    if not asyncio.run(_ends_within(wait_s, root, owner)):
        detail = f"{owner.run_id} (pid {owner.pid}) was told to stop and has not ended within {wait_s:g} s"
        raise CancelError(state, detail)
    return owner.run_id


def _owner(root: Path, state: str, run_id: str | None) -> OwnerRecord:
    owner = living_owner(root)
    if owner is None:
        raise CancelError(state, "nothing runs there")
    if run_id is not None and owner.run_id != run_id:
        raise CancelError(state, f"{owner.run_id} runs there, not {run_id}")
    if owner.host != platform.node():
        raise CancelError(state, f"{owner.run_id} runs on {owner.host} (pid {owner.pid}): cancel it there")
    return owner


async def _ends_within(wait_s: float, root: Path, owner: OwnerRecord) -> bool:
    """Wait until the owner has let go of its state; says whether it did."""
    try:
        async with asyncio.timeout(wait_s):
            # A lock file tells nobody when it is free.
            while (now := living_owner(root)) is not None and now.epoch == owner.epoch:  # noqa: ASYNC110
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        return False
    return True
