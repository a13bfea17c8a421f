"""Dependencies on whatever the plan holds with a tag or of a category (MOD-16)."""

from __future__ import annotations

from typing import Any, Generic, TypeVar, final, overload

from towline.errors.declaration import DeclarationError
from towline.modules.spec import SelectorRef

T_co = TypeVar("T_co", covariant=True)
V = TypeVar("V")


@final
class Selector(Generic[T_co]):
    """The modules of the plan with a tag or category; their values come as a list in id order.

    Resolved when the plan is built, against its other modules; it adds none, and must find at least one.
    """

    __slots__ = ("reference",)

    def __init__(self, reference: SelectorRef | None = None) -> None:
        if reference is None:
            raise DeclarationError("Selector", "selector", None, "write tagged('name') or in_category('name')")
        self.reference = reference

    def __repr__(self) -> str:
        made_by = "tagged" if self.reference.kind == "tag" else "in_category"
        return f"{made_by}({self.reference.value!r})"


@overload
def tagged(tag: str, /) -> Selector[object]: ...
@overload
def tagged(tag: str, /, *, result: type[V]) -> Selector[V]: ...
def tagged(tag: str, /, *, result: Any = object) -> Selector[Any]:
    """Select by tag, without regard to case. ``result`` is needed for values; it is checked when the plan is built."""
    _check("tagged", tag)
    return Selector(SelectorRef("tag", tag.casefold(), result))


@overload
def in_category(category: str, /) -> Selector[object]: ...
@overload
def in_category(category: str, /, *, result: type[V]) -> Selector[V]: ...
def in_category(category: str, /, *, result: Any = object) -> Selector[Any]:
    """Select by category, without regard to case; ``result`` as in :func:`tagged`."""
    _check("in_category", category)
    return Selector(SelectorRef("category", category.casefold(), result))


def _check(selector: str, value: object) -> None:
    if not isinstance(value, str) or not value:
        raise DeclarationError(selector, "name", value, "the text of a tag or category")
