"""What the signature of a body says: context first, then item, axes and dependencies (MOD-10, MOD-11, RUN-61).

Read from the code object: ``inspect`` takes 50 times as long, and is not needed for anything else at start-up.
"""

from __future__ import annotations

from types import FunctionType
from typing import TYPE_CHECKING, Any

import msgspec

from towline.modules.markers import Marker
from towline.modules.spec import SourceRef

if TYPE_CHECKING:
    from collections.abc import Collection
    from types import CodeType

    from towline.modules.checking import Declaring
    from towline.modules.expansions import Expansion
    from towline.modules.scope import Scope

_VARARGS, _VARKEYWORDS, _GENERATOR, _COROUTINE, _ASYNC_GENERATOR = 0x04, 0x08, 0x20, 0x80, 0x200
"""Flags of code objects (``inspect.CO_*``)."""

NO_DEFAULT: Any = object()


class Parameter(msgspec.Struct, frozen=True):
    """One parameter of a body; ``default`` is ``NO_DEFAULT`` without one."""

    name: str
    default: Any
    keyword_only: bool
    positional_only: bool


class Body(msgspec.Struct, frozen=True):
    """What was read of one body."""

    function: Any  # a FunctionType; as a field of that type checkers would take it for a method
    """The innermost function, whose code and annotations count."""
    sync: bool
    parameters: tuple[Parameter, ...]

    @property
    def code(self) -> CodeType:
        """The code of the innermost function."""
        code: CodeType = self.function.__code__
        return code


def innermost(function: object) -> object:
    """Follow ``functools.wraps`` down to the function that was written."""
    for _ in range(32):  # a chain of wrappers that leads back to itself is somebody's bug, not ours to hang on
        inner = getattr(function, "__wrapped__", None)
        if inner is None:
            break
        function = inner
    return function


def is_async(function: object) -> bool:
    """Say whether calling this gives a coroutine, as far as its code tells; also through ``functools.wraps``."""
    for one in (function, innermost(function)):
        code = getattr(one, "__code__", None)
        if code is not None and code.co_flags & _COROUTINE:
            return True
    return False


def read_body(declaring: Declaring, function: Any) -> Body:
    """Read a function that is to become a body.

    Raises:
        DeclarationError: It is no plain function, or it yields.
    """
    inner = innermost(function)
    if not isinstance(inner, FunctionType) or not callable(function):
        declaring.refuse(
            "body", function, "a function written with def or async def; a method, partial or class is none"
        )
    if declaring.source is None:
        declaring.source = SourceRef(inner.__code__.co_filename, inner.__code__.co_firstlineno)
    flags = inner.__code__.co_flags
    if flags & (_GENERATOR | _ASYNC_GENERATOR):
        declaring.refuse(
            "body",
            inner.__name__,
            "a body returns its value, it does not yield: return a list, or walk with ctx.cursor",
        )
    return Body(inner, not is_async(function), _parameters(inner))


def _parameters(function: FunctionType) -> tuple[Parameter, ...]:
    code = function.__code__
    count, only = code.co_argcount, code.co_kwonlyargcount
    names = code.co_varnames
    defaults = function.__defaults__ or ()
    plain = count - len(defaults)
    by_name = function.__kwdefaults__ or {}
    return (
        *(
            Parameter(names[i], defaults[i - plain] if i >= plain else NO_DEFAULT, False, i < code.co_posonlyargcount)
            for i in range(count)
        ),
        *(Parameter(name, by_name.get(name, NO_DEFAULT), True, False) for name in names[count : count + only]),
    )


def check_context(declaring: Declaring, body: Body, scope: Scope, *, method: bool = False) -> tuple[Parameter, ...]:
    """Check that the context comes first, and is of the right kind; return the parameters after it.

    Raises:
        DeclarationError: There is no first parameter, it is keyword-only, or annotated with the other context.
    """
    parameters = body.parameters[1:] if method else body.parameters
    wanted, other = ("SyncContext", "Context") if body.sync else ("Context", "SyncContext")
    if not parameters or parameters[0].keyword_only or isinstance(parameters[0].default, Marker):
        declaring.refuse(
            "body",
            body.function.__name__,
            f"the first parameter of a body is its context: def {body.function.__name__}({'self, ' if method else ''}ctx: {wanted}, ...)",
        )
    first = parameters[0]
    if not method and first.name in ("self", "cls"):
        declaring.refuse(
            "body",
            body.function.__name__,
            "a function outside of a class; for a class write class X(Module[T]) with a run method",
        )
    if _last_name(body.function.__annotations__.get(first.name), scope) == other:
        kind = "a sync body" if body.sync else "an async body"
        declaring.refuse("body", body.function.__name__, f"the context of {kind} is a {wanted}, not a {other}")
    return parameters[1:]


def _last_name(annotation: Any, scope: Scope) -> str | None:
    """Name the class of an annotation without evaluating it: its text may name what is only known to checkers."""
    if isinstance(annotation, type):
        return annotation.__name__ if annotation.__module__.startswith("towline.") else None
    if not isinstance(annotation, str):
        return None
    found: Any = None
    first, *rest = annotation.strip("'\" ").split(".")
    for names in (scope.local_names, scope.global_names):
        if first in names:
            found = names[first]
            break
    for name in rest:
        found = getattr(found, name, None)
    if found is not None:
        return _last_name(found, scope) if isinstance(found, type) else None
    return (rest or [first])[-1]


class Signature(msgspec.Struct, frozen=True):
    """What the parameters after the context stand for."""

    markers: tuple[tuple[str, Marker], ...] = ()
    axes: tuple[str, ...] = ()
    takes_item: bool = False


def read_signature(
    declaring: Declaring, body: Body, parameters: tuple[Parameter, ...], *, expansion: Expansion
) -> Signature:
    """Sort the parameters of a function module after its context.

    Raises:
        DeclarationError: A parameter has no default and is neither the item nor an axis.
    """
    axes, each = expansion.matrix or (), expansion.each is not None
    if each:
        if not parameters or parameters[0].name != "item" or isinstance(parameters[0].default, Marker):
            declaring.refuse("each", body.function.__name__, "the second parameter of an each body is called item")
        parameters = parameters[1:]
    markers: list[tuple[str, Marker]] = []
    own_axes: list[str] = []
    for parameter in parameters:
        is_marker = isinstance(parameter.default, Marker)
        if (is_marker or parameter.name in axes) and parameter.positional_only:
            declaring.refuse("parameter", parameter.name, "it is given by name, so it cannot stand before the /")
        if parameter.name in axes:
            if is_marker:
                declaring.refuse(
                    "parameter", parameter.name, "it is an axis of the matrix already; a dependency needs another name"
                )
            own_axes.append(parameter.name)
        elif is_marker:
            markers.append((parameter.name, parameter.default))
        elif parameter.default is NO_DEFAULT:
            _refuse_parameter(declaring, parameter.name, axes, each=each)
    if body.code.co_flags & (_VARARGS | _VARKEYWORDS):
        declaring.refuse(
            "body", body.function.__name__, "a body names its parameters: *args and **kwargs would never be filled"
        )
    return Signature(tuple(markers), tuple(own_axes), each)


def _refuse_parameter(declaring: Declaring, name: str, axes: Collection[str], *, each: bool) -> None:
    from towline.identity import suggestion

    known = f" or one of the axes {', '.join(axes)}" if axes else ""
    hint = suggestion(name, axes) or (" Items come with each=result_of(...)." if name == "item" and not each else "")
    declaring.refuse("parameter", name, f"a parameter needs a default, for example result_of(...){known}.{hint}")
