"""What is worked out when a function is declared as a module: its settings, parameters, edges and spec."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from towline.modules.annotations import annotation_in
from towline.modules.bodies import Signature, check_context, read_body, read_signature
from towline.modules.checking import Declaring, checked_name, checked_settings
from towline.modules.dependencies import edges_of, uses_of
from towline.modules.expansions import expansion_of
from towline.modules.functions import ExpandedFunction, FunctionModule
from towline.modules.scope import place_of_function
from towline.modules.spec import ModuleSpec

if TYPE_CHECKING:
    from collections.abc import Callable


def declare_function(
    function: Any, settings: dict[str, Any]
) -> FunctionModule[..., Any, Any] | ExpandedFunction[..., Any, Any]:
    """Carry out what ``@module`` says over a function.

    Raises:
        DeclarationError: The body, a parameter or a setting cannot be meant.
    """
    declaring = Declaring(str(settings.get("name", getattr(function, "__name__", "a module"))), None)
    body = read_body(declaring, function)
    place = place_of_function(body.code, body.function.__globals__, body.function.__qualname__)
    name = checked_name(declaring, settings.get("name", function.__name__))
    checked = checked_settings(declaring, settings, expandable=True)
    if checked.isolation == "thread" and not body.sync:
        declaring.refuse("isolation", "thread", "an async body runs on the loop, or in a process")
    expansion = expansion_of(declaring, settings)
    rest = check_context(declaring, body, place.scope)
    signature = read_signature(declaring, body, rest, expansion=expansion)
    annotations = body.function.__annotations__
    marked = ((param, marker, annotation_in(place.scope, annotations, param)) for param, marker in signature.markers)
    edges = edges_of(declaring, marked, settings, always_run=checked.always_run)
    if "consumes" in settings:
        checked = msgspec.structs.replace(checked, consumes=uses_of(declaring, settings["consumes"]))
    kind = FunctionModule if expansion.is_single else ExpandedFunction
    declared: FunctionModule[..., Any, Any] | ExpandedFunction[..., Any, Any] = kind(function, name)
    declared.towline_spec = ModuleSpec(
        name=name,
        kind="function",
        sync=body.sync,
        call=_caller(function, signature),
        declared=declared,
        result_type=annotation_in(place.scope, annotations, "return"),
        edges=edges,
        settings=checked,
        matrix=expansion.matrix,
        each=expansion.each,
        code=body.function,
        source=place.source,
    )
    return declared


def _caller(function: Any, signature: Signature) -> Callable[[Any, dict[str, Any], Any], Any]:
    """Make the call of a body from its context, inputs and item; axes come from the context's matrix."""
    axes = signature.axes
    if signature.takes_item:
        return lambda ctx, inputs, item: function(ctx, item, **inputs)
    if axes:
        return lambda ctx, inputs, item: function(ctx, **{axis: ctx.matrix[axis] for axis in axes}, **inputs)
    return lambda ctx, inputs, item: function(ctx, **inputs)
