"""What annotations mean: resolved when the plan is built, for only then all their names are known (MOD-17)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from towline.errors.declaration import DeclarationError

if TYPE_CHECKING:
    from towline.modules.scope import Scope
    from towline.modules.spec import Edge, ModuleSpec


class Unresolved(msgspec.Struct, frozen=True, eq=False):
    """An annotation as it was written, with the names that it can see."""

    written: Any
    scope: Scope


def annotation_in(scope: Scope, annotations: dict[str, Any], name: str) -> Any:
    """Take one annotation for later; plain classes are kept as they are, a missing one is ``Any``."""
    if name not in annotations:
        return Any
    written = annotations[name]
    if written is None:
        return type(None)
    return written if isinstance(written, type) else Unresolved(written, scope)


def resolve_types(spec: ModuleSpec) -> ModuleSpec:
    """Return the spec with its result type and the annotations of its edges as real types.

    Called at plan build. A spec without anything to resolve is returned as it is.

    Raises:
        DeclarationError: A name in an annotation is not known at run time, for example because it is
            imported under ``TYPE_CHECKING`` only.
    """
    result_type = _resolved(spec, "result", spec.result_type)
    edges = tuple(_resolved_edge(spec, edge) for edge in spec.edges)
    if result_type is spec.result_type and all(new is old for new, old in zip(edges, spec.edges, strict=True)):
        return spec
    return msgspec.structs.replace(spec, result_type=result_type, edges=edges)


def _resolved_edge(spec: ModuleSpec, edge: Edge) -> Edge:
    if not isinstance(edge.annotation, Unresolved):
        return edge
    return msgspec.structs.replace(edge, annotation=_resolved(spec, edge.param or "after", edge.annotation))


def _resolved(spec: ModuleSpec, what: str, annotation: Any) -> Any:
    if not isinstance(annotation, Unresolved):
        return annotation
    written, scope = annotation.written, annotation.scope
    if isinstance(written, TypeVar):
        return Any
    if isinstance(written, str) and (plain := _looked_up(written, scope)) is not None:
        return plain
    from typing import get_type_hints

    holder = _Holder()
    holder.__annotations__ = {what: written}
    try:
        return get_type_hints(holder, dict(scope.global_names), dict(scope.local_names), include_extras=True)[what]
    except NameError as error:
        where = None if spec.source is None else str(spec.source)
        allowed = f"the name {error.name!r} is not known when the module runs; import it outside of `if TYPE_CHECKING:`"
        raise DeclarationError(spec.name, _setting(what), written, allowed, where) from error
    except (TypeError, SyntaxError, AttributeError) as error:
        where = None if spec.source is None else str(spec.source)
        raise DeclarationError(spec.name, _setting(what), written, f"this is no type: {error}", where) from error


class _Holder:
    """Carries annotations into ``get_type_hints``, which wants an object."""


def _setting(what: str) -> str:
    return "the result type" if what == "result" else f"the annotation of {what}"


def _looked_up(text: str, scope: Scope) -> Any:
    """Resolve a plain name without evaluating anything; ``None`` when it is more than a name, or not a class."""
    if text == "None":
        return type(None)
    found = scope.local_names.get(text)
    if found is None:
        found = scope.global_names.get(text)
    if found is None:
        found = _builtin(text)
    return found if isinstance(found, type) else None


def _builtin(text: str) -> Any:
    import builtins

    return getattr(builtins, text, None) if text.isidentifier() else None
