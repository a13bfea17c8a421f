"""Arrays as bytes: what may travel, how a dtype is written, views that cannot be written to (OFF-107, OFF-204, OFF-205)."""

from __future__ import annotations

import json
import math
from functools import lru_cache
from typing import Any, Protocol, TypeAlias

import numpy as np

from towline.errors.offload import BufferTypeError

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
"""What a kernel sees: a numpy array of any shape and dtype."""

DType: TypeAlias = np.dtype[Any]

MAX_AXES = 32
MAX_BUFFER_BYTES = 8 << 30


class SupportsBuffer(Protocol):
    """An object with the buffer protocol; viewed without a copy."""

    def __buffer__(self, flags: int, /) -> memoryview: ...


class SupportsDlpack(Protocol):
    """An object that exchanges arrays by DLPack; viewed without a copy where it lives in host memory."""

    def __dlpack__(self) -> object: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...


ArrayLike: TypeAlias = Array | SupportsBuffer | SupportsDlpack

_CPU_DEVICES = (1, 3)  # kDLCPU, kDLCUDAHost: memory that this process can read


def as_array(source: object, label: str = "The object") -> Array:
    """View anything array-like as a numpy array, without a copy (OFF-207).

    Raises:
        BufferTypeError: It is no array, lives on a device, or holds Python objects.
    """
    exporter: Any = source
    if isinstance(source, np.ndarray):
        array: Array = source
    elif hasattr(source, "__dlpack__"):
        if exporter.__dlpack_device__()[0] not in _CPU_DEVICES:
            raise BufferTypeError(
                label,
                f"its {type(source).__name__} lives on a device",
                "Copy it to host memory first, e.g. .cpu() or .get().",
            )
        array = np.from_dlpack(exporter)
    else:
        try:
            array = np.asarray(memoryview(exporter))
        except (TypeError, ValueError, BufferError) as error:
            raise BufferTypeError(
                label, f"{type(source).__name__} is no array ({error})", "Pass a numpy array, or np.asarray(...) of it."
            ) from error
    check_dtype(array.dtype, label)
    return array


def check_dtype(dtype: DType, label: str) -> None:
    """Refuse dtypes whose bytes mean nothing elsewhere: Python objects, nested ones too (OFF-204)."""
    if dtype.hasobject:
        raise BufferTypeError(
            label, f"dtype {dtype} holds Python objects, which are pointers", "Convert it, e.g. array.astype(float)."
        )


def write_dtype(dtype: DType) -> str:
    """Write a dtype as text: ``dtype.str``, or the field list of a structured one as JSON."""
    if dtype.fields is None and dtype.subdtype is None:
        return dtype.str
    return json.dumps(np.lib.format.dtype_to_descr(dtype))


@lru_cache(maxsize=1_024)
def read_dtype(text: str) -> DType:
    """Read what ``write_dtype`` wrote.

    Raises:
        ValueError: It is no dtype, or one with objects.
    """
    try:
        descr = _tuples(json.loads(text)) if text.startswith(("[", '"')) else text
        dtype: DType = np.lib.format.descr_to_dtype(descr)  # type: ignore[arg-type]  # it takes plain texts too
    except (TypeError, ValueError, RecursionError, KeyError, IndexError, AttributeError) as error:
        raise ValueError(f"{text[:80]!r} is no dtype") from error
    if dtype.hasobject:
        raise ValueError(f"dtype {dtype} holds objects")
    return dtype


def checked_bytes(dtype: DType, shape: tuple[int, ...] | list[int], limit: int = MAX_BUFFER_BYTES) -> int:
    """Return the size of an array in bytes, computed without overflow.

    Raises:
        ValueError: More than 32 axes, a negative length, or more than ``limit`` bytes.
    """
    if len(shape) > MAX_AXES:
        raise ValueError(f"{len(shape)} axes, at most {MAX_AXES}")
    if min(shape, default=0) < 0:
        raise ValueError(f"negative length in {tuple(shape)}")
    size = math.prod(shape) * dtype.itemsize
    if size > limit:
        raise ValueError(f"{size} bytes, at most {limit}")
    return size


def bytes_of(array: Array) -> memoryview:
    """View a C-contiguous array as flat bytes, of any dtype; writable if the array is."""
    if array.nbytes == 0:
        return memoryview(b"")
    flat: Any = array.reshape(-1).view(np.uint8)  # before Python 3.12 numpy's types do not say that it is a buffer
    return memoryview(flat)


def array_over(memory: memoryview | bytearray, dtype: DType, shape: tuple[int, ...]) -> Array:
    """View memory as an array; read-only if the memory is."""
    size = checked_bytes(dtype, shape)
    if size == 0:
        return np.empty(shape, dtype)
    # Not np.ndarray(shape, dtype, memory): a view of it could be made writable though the memory is read-only.
    flat: Array = np.frombuffer(memory, dtype, size // dtype.itemsize)
    return flat.reshape(shape) if len(shape) != 1 else flat


def read_only(array: Array) -> Array:
    """View an array so that nobody can write through the view, nor make it writable (OFF-107)."""
    if array.nbytes == 0 or not array.flags.c_contiguous:
        private = array.copy()
        private.flags.writeable = False
        return private
    return array_over(bytes_of(array).toreadonly(), array.dtype, array.shape)


def same_bytes(left: Array, right: Array) -> bool:
    """Say whether two arrays hold equal bytes, NaN payloads included."""
    return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()


def _tuples(descr: Any) -> Any:
    """JSON turned the tuples of a field list into lists: turn the fields back, leave shapes as tuples."""
    if isinstance(descr, list) and descr and isinstance(descr[0], list):
        return [tuple(_tuples(part) for part in field) for field in descr]
    return tuple(descr) if isinstance(descr, list) else descr
