"""``towline cancel``: stop the run that owns a state folder of this host (CTL-28)."""

from __future__ import annotations

import asyncio
import os
import platform
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from towline.cli.owners import living_owner
from towline.cli.results import write_result
from towline.errors.configuration import CancelError

if TYPE_CHECKING:
    from towline.state.owner_file import OwnerRecord

POLL_S = 0.05
"""How often it is looked whether the run has let go of its state."""


def cancel_run(state: str, run_id: str | None, task: str | None, *, wait_s: float) -> int:
    """Send SIGINT to the owner of a state folder and wait until it has let go; returns 0.

    Raises:
        CancelError: Nothing runs there, another run does, the owner is on another host, or it did not end
            within ``wait_s`` seconds.
    """
    if "://" in state:
        raise CancelError(state, "a URL needs a control plane; give the state folder of the run, on its host")
    if task is not None:
        raise CancelError(state, "one task alone can only be cancelled through the URL of a control plane")
    root = Path(state)
    owner = _owner(root, state, run_id)
    try:
        os.kill(owner.pid, signal.SIGINT)
    except PermissionError as error:
        detail = f"{owner.run_id} (pid {owner.pid}) belongs to another user: cancel it as that one"
        raise CancelError(state, detail) from error
    if not asyncio.run(_ends_within(wait_s, root, owner)):
        detail = f"{owner.run_id} (pid {owner.pid}) was told to stop and has not ended within {wait_s:g} s"
        raise CancelError(state, detail)
    write_result([f"{owner.run_id} has stopped; run it again with --resume to go on"])
    return 0


def _owner(root: Path, state: str, run_id: str | None) -> OwnerRecord:
    if not root.is_dir():
        raise CancelError(state, "there is no such folder")
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
