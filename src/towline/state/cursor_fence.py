"""Put one's own epoch on a task's cursor document before reading it (CUR-05)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from towline.errors.state import LeaseLostError, VersionConflictError
from towline.state.cursor_documents import CursorDocument, decode_document, encode_document
from towline.state.keys import cursor_key, skips_key
from towline.state.store import ABSENT, ANYTHING

if TYPE_CHECKING:
    from towline.state.store import StateStore, Version


async def take_fence(
    store: StateStore, task_id: str, plan_id: str, epoch: int, at: str
) -> tuple[CursorDocument, Version]:
    """Raise the stored fence of a task to this claim, and return its cursor document as it then is.

    From here on a write of an older claim is refused, so what is read cannot change under this one.
    A document of an older plan counts as none and is replaced.

    Raises:
        LeaseLostError: A later claim or plan has been there.
        CursorCorruptError: The document cannot be read.
    """
    key, own = cursor_key(task_id), (plan_id, epoch)
    while True:
        entry = await store.read(key)
        document = None if entry is None else decode_document(entry.data, CursorDocument, task_id, key)
        if document is not None and (document.plan_id, document.epoch) > own:
            raise LeaseLostError(task_id, epoch, document.epoch)
        if document is None or document.plan_id < plan_id:
            document = CursorDocument(task=task_id, plan_id=plan_id, epoch=epoch, updated_at=at, made=f"{at}/{epoch}")
        elif document.epoch == epoch and entry is not None:
            return document, entry.version
        document.epoch = epoch
        try:
            version = await store.write(key, encode_document(document), ABSENT if entry is None else entry.version)
        except VersionConflictError:
            continue  # another claim was faster; it is older or newer, which reading again tells
        if document.key is None:
            # No item was passed in this plan: what lies there is of an older one, or of a skip that is repeated.
            await store.delete(skips_key(task_id), ANYTHING)
        return document, version
