"""Values on the private line between a node and a process of its own: as everywhere, and secrets too (SEC-07)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from towline.masking.secret import Secret
from towline.serialization.codec import Codec
from towline.serialization.shapes import TEXT, Shape
from towline.serialization.typing_forms import ShapeBuilder

if TYPE_CHECKING:
    from pathlib import PurePath


class SecretShape(Shape):
    """A secret as its text. Nothing that is stored, shown or sent to another machine may be of this shape."""

    kinds, classes, name = TEXT, (Secret,), "Secret"

    def lower(self, value: Any, workdir: PurePath | None) -> Any:
        """Reveal it."""
        if type(value) is not Secret:
            raise self.wrong_class(value)
        return value.reveal()

    def lift(self, raw: Any, workdir: PurePath | None) -> Any:
        """Cover it again."""
        if type(raw) is not str:
            raise self.wrong_kind(raw)
        return Secret(raw)


def private_codec_for(declared: Any) -> Codec:
    """Return the codec of a type that may hold secrets.

    Raises:
        ResultTypeError: The type has no JSON form, secrets apart; its path says where in it.
    """
    return Codec(declared, ShapeBuilder({Secret: SecretShape()}).build(declared, "params", {}))
