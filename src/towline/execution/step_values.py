"""How the value of a step is stored and read back (CUR-16)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from towline.modules.step_results import UNDECLARED

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import PurePath


def step_codec(declared: Any, workdir: PurePath) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    """Return how to encode and decode a value of this type.

    Without a declared type only plain JSON values are taken, for those alone come back as they were.
    """
    if declared is UNDECLARED:
        return _encode_plain, msgspec.json.decode
    from towline.serialization.codec import codec_for

    codec = codec_for(type(None) if declared is None else declared)
    return lambda value: codec.encode(value, workdir=workdir), lambda data: codec.decode(data, workdir=workdir)


def _encode_plain(value: Any) -> bytes:
    data = msgspec.json.encode(value)
    if msgspec.json.decode(data) != value:
        raise TypeError("its function declares no result type, and the value does not come back from JSON as it was")
    return data
