"""Values that are too large to ride in an outcome: stored as artifacts, named in their place (COORD-C57)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from towline.artifacts.records import ArtifactRef
from towline.distributed.outcomes import payload_of
from towline.errors.artifacts import ArtifactCorruptError
from towline.identity import digest_of
from towline.serialization.exceptions import record_of

if TYPE_CHECKING:
    from towline.artifacts.store import ArtifactStore
    from towline.coordination.records import OutcomeRecord

INLINE_VALUE_BYTES: Final = 1024 * 1024
"""Largest value, as JSON, that an outcome carries itself."""

VALUE_NAME: Final = "value"


def is_large(payload: bytes | None) -> bool:
    """Say whether a value has to go by reference."""
    return payload is not None and len(payload) > INLINE_VALUE_BYTES


async def by_reference(record: OutcomeRecord, artifacts: ArtifactStore, run_id: str) -> OutcomeRecord:
    """Store the value of an outcome when it is large; a store that refuses it fails the task (DIST-20)."""
    payload = payload_of(record)
    if payload is None or not is_large(payload):
        return record
    try:
        stored = await artifacts.put([payload], run_id=run_id)
    except Exception as error:  # noqa: BLE001 - whatever keeps a value from being stored is the task's failure
        text = f"its value of {len(payload):,} bytes could not be stored: {error}"
        return _failed(record, error, text)
    reference = ArtifactRef(
        task_id=record.task_id,
        name=VALUE_NAME,
        digest=stored.digest,
        size_bytes=stored.size_bytes,
        kind="file",
    )
    return msgspec.structs.replace(record, value=msgspec.UNSET, value_ref=reference)


async def with_value(record: OutcomeRecord, artifacts: ArtifactStore) -> OutcomeRecord:
    """Put the value that an outcome refers to back into it.

    Raises:
        ArtifactMissingError, ArtifactCorruptError: The store does not have it whole.
        OSError: The store cannot be asked.
    """
    reference = record.value_ref
    if reference is None:
        return record
    payload = bytearray()
    async for chunk in artifacts.open(reference.digest):
        payload += chunk
    data = bytes(payload)
    if digest_of(data) != reference.digest:
        detail = f"its bytes have digest {digest_of(data)}"
        raise ArtifactCorruptError(reference.name, reference.task_id, reference.digest, detail)
    return msgspec.structs.replace(record, value=msgspec.Raw(data), value_ref=None)


async def with_value_or_failed(record: OutcomeRecord, artifacts: ArtifactStore) -> OutcomeRecord:
    """As :func:`with_value`; an outcome whose value cannot be had becomes a failure that says so."""
    try:
        return await with_value(record, artifacts)
    except Exception as error:  # noqa: BLE001 - one value that is gone must not end the run
        return _failed(record, error, f"its value could not be read: {error}")


def _failed(record: OutcomeRecord, error: Exception, text: str) -> OutcomeRecord:
    return msgspec.structs.replace(
        record,
        state="failed",
        reason="error",
        reason_text=text,
        error=record_of(error, record.worker_id),
        value=msgspec.UNSET,
        value_ref=None,
    )
