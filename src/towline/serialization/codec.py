"""Encode and decode values by their declared type; check a type when the plan is built (SER-01 .. SER-10).

A codec is made when it is first asked for and kept: most runs never encode most of their types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from towline.errors.values import ResultTooLargeError, ResultTypeError, SerializationError
from towline.serialization.misfit import MisfitError

if TYPE_CHECKING:
    from pathlib import PurePath

    from towline.serialization.shapes import Shape

VALUE_LIMIT_BYTES = 64 * 1024 * 1024
"""Largest encoded value (SER-09)."""

_encode, _decode = msgspec.json.encode, msgspec.json.decode
_DEEP = "is nested too deeply, or contains itself"


class Codec:
    """Writes and reads the values of one declared type as JSON.

    Both directions take the workdir of their own node: a path inside it is written relative to it (SER-07).
    """

    __slots__ = ("_shape", "declared")

    def __init__(self, declared: Any, shape: Shape) -> None:
        self.declared, self._shape = declared, shape

    def encode(self, value: object, *, workdir: PurePath | None = None, limit_bytes: int = VALUE_LIMIT_BYTES) -> bytes:
        """Return the value as JSON; equal values give equal bytes, but for the order of a dict.

        Raises:
            ResultTypeError: The value, or something in it, is not of its declared class (SER-04).
            SerializationError: It is cyclic, too deep, or holds text that is no UTF-8 (SER-08).
            ResultTooLargeError: It takes more than ``limit_bytes`` (SER-09).
        """
        try:
            data = _encode(self._shape.lower(value, workdir))
        except MisfitError as misfit:
            path = f"value{misfit.path}"
            if misfit.actual:
                raise ResultTypeError("", misfit.declared, misfit.actual, path) from misfit.__cause__
            raise SerializationError(path, misfit.detail) from misfit.__cause__
        except RecursionError:
            raise SerializationError("value", _DEEP) from None
        if len(data) > limit_bytes:
            raise ResultTooLargeError("", len(data), limit_bytes)
        return data

    def decode(self, data: bytes | bytearray | memoryview | msgspec.Raw, *, workdir: PurePath | None = None) -> Any:
        """Return the value that was encoded.

        Raises:
            SerializationError: The bytes are no JSON, or not such a value; its path says where (SER-10).
        """
        try:
            return self._shape.lift(_decode(data), workdir)
        except MisfitError as misfit:
            raise SerializationError(f"value{misfit.path}", misfit.detail) from misfit.__cause__
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise SerializationError("value", f"is no JSON: {error}") from error
        except RecursionError:
            raise SerializationError("value", _DEEP) from None


_codecs: dict[Any, Codec] = {}


def codec_for(declared: Any) -> Codec:
    """Return the codec of a declared type.

    Raises:
        ResultTypeError: The type has no JSON form; its path says where in it (SER-02).
    """
    try:
        return _codecs[declared]
    except KeyError:
        codec = _codecs[declared] = _build(declared)
        return codec
    except TypeError:  # an unhashable type: metadata of Annotated may be anything
        return _build(declared)


def check_type(declared: Any) -> None:
    """Refuse a result type that has no JSON form; for plans that must encode (SER-02).

    Raises:
        ResultTypeError: With the path in the type; add the module by ``for_module``.
    """
    codec_for(declared)


def _build(declared: Any) -> Codec:
    # Here and not above: a run that encodes nothing shall not pay for the machinery.
    from towline.serialization.typing_forms import ShapeBuilder

    return Codec(declared, ShapeBuilder().build(declared, "result", {}))
