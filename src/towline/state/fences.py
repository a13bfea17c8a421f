"""Compare a write's fence with what the store has seen (STATE-03, CUR-05). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from towline.errors.cursors import CursorCorruptError
from towline.errors.state import LeaseLostError, OwnershipLostError
from towline.state.keys import cursor_key

if TYPE_CHECKING:
    from towline.state.store import Fence


class TaskFence(msgspec.Struct, frozen=True):
    """The part of a cursor document that fences: everything else in it may change."""

    plan_id: str = ""
    epoch: int = 0


_decode = msgspec.json.Decoder(TaskFence).decode


def check_owner(fence: Fence, latest_epoch: int, store: str) -> None:
    """Refuse a former owner.

    Raises:
        OwnershipLostError: A later owner has acquired the plan.
    """
    if latest_epoch > fence.epoch:
        raise OwnershipLostError(store, fence.epoch, latest_epoch)


def check_task(fence: Fence, cursor_document: bytes | bytearray | None) -> None:
    """Refuse a claim that is older than the one in the task's cursor document.

    Raises:
        LeaseLostError: A later claim, or one of a later plan, has written.
        CursorCorruptError: The document cannot be read, so it cannot be told.
    """
    if cursor_document is None or fence.task is None:
        return
    try:
        stored = _decode(cursor_document)
    except (msgspec.MsgspecError, ValueError) as error:
        raise CursorCorruptError(fence.task, cursor_key(fence.task), str(error)) from error
    if (stored.plan_id, stored.epoch) > (fence.plan_id, fence.epoch):
        raise LeaseLostError(fence.task, fence.epoch, stored.epoch)
