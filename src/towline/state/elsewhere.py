"""``state-at.json``: in the folder of a pipeline whose state lies on a server, where that is (PLAN-27).

It is for people who look from that folder and for the commands that they give; a run never reads it.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

import msgspec

from towline.state.keys import STATE_AT_FILE

if TYPE_CHECKING:
    from pathlib import Path

_USER_INFO: Final = re.compile(r"(?<=://)\S*@")


class StateAt(msgspec.Struct, frozen=True, kw_only=True):
    """Where the state of the latest run of a folder lies: the server's URL, without user and password."""

    schema: int = 1
    state: str
    pipeline: str
    run_id: str


def write_state_at(folder: Path, url: str, pipeline: str, run_id: str) -> None:
    """Note where the state of a run lies. Raises ``OSError`` when the folder cannot be written."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    record = StateAt(state=_USER_INFO.sub("", url), pipeline=pipeline, run_id=run_id)
    draft = folder / f"{STATE_AT_FILE}.{os.getpid():x}"
    draft.write_bytes(msgspec.json.encode(record) + b"\n")
    draft.replace(folder / STATE_AT_FILE)


def read_state_at(folder: Path) -> StateAt | None:
    """Read where the state lies; ``None``: in the folder itself, as far as can be told."""
    try:
        found = msgspec.json.decode((folder / STATE_AT_FILE).read_bytes(), type=StateAt)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return found if found.schema == 1 else None
