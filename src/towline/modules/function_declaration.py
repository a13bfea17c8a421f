"""What is worked out when a function is declared as a module: its settings, parameters, edges and spec."""

# ruff: noqa: TC004 - the record is never decoded, so its annotations need no imports at start-up.

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from towline.modules.annotations import annotation_in
from towline.modules.bodies import Body, Signature, check_context, read_body, read_signature
from towline.modules.checking import Declaring, checked_name, checked_settings
from towline.modules.dependencies import MarkedField, edges_of, uses_of
from towline.modules.expansions import expansion_of
from towline.modules.functions import ExpandedFunction, FunctionModule
from towline.modules.scope import Place, place_of_function
from towline.modules.spec import ModuleSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from towline.modules.expansions import Expansion


class _Reading(msgspec.Struct, frozen=True):
    """What a function says by itself, whatever the settings beside it: what a loop that makes thousands of modules
    of one function would read thousands of times."""

    body: Body
    place: Place
    signature: Signature
    defaults: tuple[object, object]
    marked: tuple[MarkedField, ...]
    result_type: Any
    call: Callable[[Any, dict[str, Any], Any], Any]


_last: tuple[Any, _Reading] | None = None
"""The function of a module that was declared last, if another declaration of it would read the same."""


def declare_function(
    function: Any, settings: dict[str, Any]
) -> FunctionModule[..., Any, Any] | ExpandedFunction[..., Any, Any]:
    """Carry out what ``@module`` says over a function.

    Raises:
        DeclarationError: The body, a parameter or a setting cannot be meant.
    """
    declaring = Declaring(str(settings.get("name", getattr(function, "__name__", "a module"))), None)
    known = _known(function)
    if known is None:
        body = read_body(declaring, function)
        place = place_of_function(body.code, body.function.__globals__, body.function.__qualname__)
    else:
        body, place = known.body, known.place
        declaring.source = place.source
    name = checked_name(declaring, settings.get("name", function.__name__))
    checked = checked_settings(declaring, settings, expandable=True)
    if checked.isolation == "thread" and not body.sync:
        declaring.refuse("isolation", "thread", "an async body runs on the loop, or in a process")
    expansion = expansion_of(declaring, settings)
    if known is None or not expansion.is_single:
        known = _read(declaring, function, body, place, expansion)
    edges = edges_of(declaring, known.marked, settings, always_run=checked.always_run)
    if "consumes" in settings:
        checked = msgspec.structs.replace(checked, consumes=uses_of(declaring, settings["consumes"]))
    kind = FunctionModule if expansion.is_single else ExpandedFunction
    declared: FunctionModule[..., Any, Any] | ExpandedFunction[..., Any, Any] = kind(function, name)
    declared.towline_spec = ModuleSpec(
        name=name,
        kind="function",
        sync=body.sync,
        call=known.call,
        declared=declared,
        result_type=known.result_type,
        edges=edges,
        settings=checked,
        matrix=expansion.matrix,
        each=expansion.each,
        code=body.function,
        source=place.source,
    )
    return declared


def _known(function: Any) -> _Reading | None:
    """Return what was read of this function last, if it has the defaults that it had then."""
    if _last is None or _last[0] is not function:
        return None
    reading = _last[1]
    written, (positional, by_name) = reading.body.function, reading.defaults
    return reading if written.__defaults__ is positional and written.__kwdefaults__ is by_name else None


def _read(declaring: Declaring, function: Any, body: Body, place: Place, expansion: Expansion) -> _Reading:
    """Read what stands behind the context; a function of a module's top level is remembered until the next."""
    global _last
    rest = check_context(declaring, body, place.scope)
    signature = read_signature(declaring, body, rest, expansion=expansion)
    annotations = body.function.__annotations__
    marked = tuple((name, marker, annotation_in(place.scope, annotations, name)) for name, marker in signature.markers)
    result_type = annotation_in(place.scope, annotations, "return")
    defaults = (body.function.__defaults__, body.function.__kwdefaults__)
    reading = _Reading(body, place, signature, defaults, marked, result_type, _caller(function, signature))
    is_same_anywhere = expansion.is_single and not place.scope.local_names
    _last = (function, reading) if is_same_anywhere else None
    return reading


def _caller(function: Any, signature: Signature) -> Callable[[Any, dict[str, Any], Any], Any]:
    """Make the call of a body from its context, inputs and item; axes come from the context's matrix."""
    axes = signature.axes
    if signature.takes_item:
        return lambda ctx, inputs, item: function(ctx, item, **inputs)
    if axes:
        return lambda ctx, inputs, item: function(ctx, **{axis: ctx.matrix[axis] for axis in axes}, **inputs)
    return lambda ctx, inputs, item: function(ctx, **inputs)
