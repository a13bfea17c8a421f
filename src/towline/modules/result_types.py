"""What a class module promises to return: the argument of its nearest ``Module[...]``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin

from towline.modules.annotations import Unresolved
from towline.modules.classes import ClassModule, ExpandedModule, Module

if TYPE_CHECKING:
    from collections.abc import Mapping

    from towline.modules.scope import Scope


def result_type_of(cls: type[Any], scope: Scope) -> Any:
    """Find what stands for ``T``: ``class X(Module[T])``, also through generic bases; ``Any`` when left out."""
    given: Any = _argument_of(cls, {})
    if given is None:
        return type(None)
    if isinstance(given, type) or given is Any:
        return given
    return Unresolved(given, scope)


def _argument_of(cls: type[Any], known: Mapping[Any, Any]) -> Any:
    for base in getattr(cls, "__orig_bases__", cls.__bases__) if "__orig_bases__" in cls.__dict__ else cls.__bases__:
        origin = get_origin(base) or base
        if not (isinstance(origin, type) and issubclass(origin, ClassModule)):
            continue
        values = tuple(_substituted(value, known) for value in get_args(base))
        if origin in (Module, ExpandedModule):
            return values[0] if values and not isinstance(values[0], TypeVar) else Any
        parameters = getattr(origin, "__parameters__", ())
        return _argument_of(origin, dict(zip(parameters, values, strict=False)))
    return Any


def _substituted(value: Any, known: Mapping[Any, Any]) -> Any:
    """Put what is known in place of type variables, also inside of ``list[T]``."""
    if isinstance(value, TypeVar):
        return known.get(value, value)
    parameters = getattr(value, "__parameters__", ())
    if not parameters or isinstance(value, type):
        return value
    return value[tuple(known.get(parameter, parameter) for parameter in parameters)]
