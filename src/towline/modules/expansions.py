"""How one module becomes many tasks: a ``matrix`` of axes, or ``each`` of some items (MOD-09, MOD-18, MOD-20)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from towline.modules.markers import Marker, marker_parts
from towline.modules.reference import reference_to
from towline.modules.selectors import Selector
from towline.modules.spec import Edge

if TYPE_CHECKING:
    from towline.modules.checking import Declaring


class Expansion(msgspec.Struct, frozen=True):
    """The axes or the items of a module; neither of one that has a single task."""

    matrix: Mapping[str, Sequence[object]] | None = None
    each: Edge | tuple[object, ...] | Mapping[str, object] | None = None

    @property
    def is_single(self) -> bool:
        """Whether the module has one task."""
        return self.matrix is None and self.each is None


SINGLE = Expansion()


def expansion_of(declaring: Declaring, settings: Mapping[str, Any]) -> Expansion:
    """Read ``matrix`` or ``each`` from the settings of a function or an ``ExpandedModule``.

    Raises:
        DeclarationError: Both are given, or one is not what it can be.
    """
    if "matrix" not in settings and "each" not in settings:
        return SINGLE
    if "matrix" in settings and "each" in settings:
        declaring.refuse("matrix", settings["matrix"], "not together with each: a module expands in one way")
    if "matrix" in settings:
        return Expansion(matrix=axes_of(declaring, settings["matrix"]))
    return Expansion(each=each_of(declaring, settings["each"]))


def each_of(declaring: Declaring, value: object) -> Edge | tuple[object, ...] | Mapping[str, object]:
    """Check what ``each`` walks: a list, tuple or dict, or the result of a module (MOD-20)."""
    if isinstance(value, Marker):
        module, use, same_key = marker_parts(value)
        if use != "value" or same_key or isinstance(module, Selector):
            declaring.refuse("each", value, "a list, tuple or dict, or result_of(m) of one module")
        return Edge(to=reference_to(module), use="value", source=declaring.source)  # type: ignore[arg-type]
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                declaring.refuse("each", value, "a dict of items has texts for keys")
        return dict(value)
    if isinstance(value, (list, tuple)):
        return tuple(value)
    return declaring.refuse("each", value, "a list, tuple or dict, or result_of(m)")


def axes_of(declaring: Declaring, value: object) -> Mapping[str, Sequence[object]]:
    """Check a matrix: axes by name, each a list or tuple of different values (MOD-18)."""
    if not isinstance(value, Mapping) or not value:
        declaring.refuse("matrix", value, "axes with their values, for example {'python': ['3.11', '3.12']}")
    for axis, values in value.items():
        if not isinstance(axis, str) or not axis.isidentifier() or axis in ("item", "ctx"):
            declaring.refuse("matrix", axis, "the name of an axis is a Python identifier other than item and ctx")
        if not isinstance(values, (list, tuple)) or not values:
            declaring.refuse("matrix", {axis: values}, "an axis is a list or tuple with at least one value")
        seen: set[str] = set()
        for text in map(str, values):
            if text in seen:
                declaring.refuse(
                    "matrix", {axis: values}, f"the values of an axis differ as text, {text!r} is there twice"
                )
            seen.add(text)
    return {axis: tuple(values) for axis, values in value.items()}
