"""What annotations mean: resolved when the plan is built, for only then all their names are known (MOD-17)."""

# ruff: noqa: TC004 - the record is never decoded, so its annotation needs no import at start-up.

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from towline.errors.declaration import DeclarationError
from towline.modules.spec import Edge, ModuleRef

if TYPE_CHECKING:
    from collections.abc import Iterator

    from towline.modules.scope import Scope
    from towline.modules.spec import ModuleSpec


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
    """Give a spec, and all that it refers to, real types in place of annotations; return the same spec.

    Called at plan build, any number of times. The records are changed in place although they are frozen:
    edges refer to specs, and a copy of each would have to be copied along every edge.

    Raises:
        DeclarationError: A name in an annotation is not known at run time, for example because it is
            imported under ``TYPE_CHECKING`` only.
    """
    found, open_specs = {id(spec): spec}, [spec]
    while open_specs:  # no recursion: a chain of modules may be longer than Python's stack (SCHED-24)
        current = open_specs.pop()
        if not current.types_resolved:
            resolve_own_types(current)
        for reference in _references(current):
            if not reference.types_resolved and id(reference) not in found:
                found[id(reference)] = reference
                open_specs.append(reference)
    for resolved in found.values():
        msgspec.structs.force_setattr(resolved, "types_resolved", True)
    return spec


def resolve_own_types(spec: ModuleSpec) -> None:
    """Give a spec real types, but nothing that it refers to: for whoever visits all modules anyway.

    Raises:
        DeclarationError: As ``resolve_types``.
    """
    if type(spec.result_type) is Unresolved:
        msgspec.structs.force_setattr(spec, "result_type", _resolved(spec, "result", spec.result_type))
    for edge in spec.edges:
        if type(edge.annotation) is Unresolved:
            msgspec.structs.force_setattr(edge, "annotation", _resolved(spec, edge.param or "after", edge.annotation))


def _references(spec: ModuleSpec) -> Iterator[ModuleSpec]:
    each = spec.each if isinstance(spec.each, Edge) else None
    for edge in (*spec.edges, *((each,) if each else ())):
        if isinstance(edge.to, ModuleRef):
            yield edge.to.spec
    for use in spec.settings.consumes:
        yield use.module.spec


def _resolved(spec: ModuleSpec, what: str, annotation: Unresolved) -> Any:
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
