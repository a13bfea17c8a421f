"""Names of things: module and task ids, keys, file segments, run ids, digests."""

from towline.identity.digests import digest_of, digest_of_parts, digest_segment, is_digest
from towline.identity.names import (
    MODULE_NAME,
    NODE_ID,
    TaskId,
    encode_key,
    new_run_id,
    segment,
    suggestion,
    task_id,
)

__all__ = [
    "MODULE_NAME",
    "NODE_ID",
    "TaskId",
    "digest_of",
    "digest_of_parts",
    "digest_segment",
    "encode_key",
    "is_digest",
    "new_run_id",
    "segment",
    "suggestion",
    "task_id",
]
