"""Which modules a plan has: those given, and all that these require (MOD-05, 06, 12). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from towline.errors.declaration import DeclarationError
from towline.modules.annotations import resolve_own_types
from towline.modules.spec import Edge, ModuleRef

if TYPE_CHECKING:
    from collections.abc import Sequence

    from towline.modules.spec import ModuleSpec


def required_modules(roots: Sequence[ModuleSpec]) -> tuple[list[ModuleSpec], list[str]]:
    """Return the modules of the plan, sorted by name, and what is wrong with their names and annotations.

    Required edges (value, order, outcome, ``each`` and ``consumes``) bring their modules along,
    transitively; optional ones and selectors never do. One object given twice, and equal instances,
    are one module (MOD-05). Annotations are resolved here, where all their names are known (MOD-17).
    """
    found: dict[str, ModuleSpec] = {}
    problems: dict[str, None] = {}
    waiting = list(roots)
    while waiting:
        spec = waiting.pop()
        name = spec.name.casefold()
        other = found.get(name)
        if other is None:
            found[name] = spec
            if spec.edges or spec.each is not None or spec.settings.consumes:
                _push_required(spec, waiting)
            if not spec.types_resolved:
                try:
                    resolve_own_types(spec)
                except DeclarationError as error:
                    problems[str(error).rstrip(".")] = None
        elif other is not spec and not _is_same(other, spec):
            problems[_clash(other, spec)] = None
    return sorted(found.values(), key=_by_name), list(problems)


def _by_name(spec: ModuleSpec) -> str:
    return spec.name


def _push_required(spec: ModuleSpec, waiting: list[ModuleSpec]) -> None:
    """Put the modules that this one requires on the list."""
    waiting.extend([edge.to.spec for edge in spec.edges if edge.use != "optional" and type(edge.to) is ModuleRef])
    if spec.settings.consumes:
        waiting.extend([use.module.spec for use in spec.settings.consumes])
    if type(spec.each) is Edge and type(spec.each.to) is ModuleRef:
        waiting.append(spec.each.to.spec)


def _is_same(left: ModuleSpec, right: ModuleSpec) -> bool:
    """Say whether two records describe one module: one object, or two equal instances of one class."""
    if left.name != right.name or type(left.declared) is not type(right.declared):
        return False
    return left.declared is right.declared or left.declared == right.declared


def _clash(left: ModuleSpec, right: ModuleSpec) -> str:
    """Say why two modules cannot have these names; the same text whichever was met first (PLAN-02)."""
    left, right = sorted((left, right), key=lambda spec: (spec.name, str(spec.source), _python_module(spec)))
    if left.name != right.name:
        return (
            f"the names {left.name!r} ({left.source}) and {right.name!r} ({right.source}) differ only in case, "
            f"so their files would clash: rename one"
        )
    homes = (_python_module(left), _python_module(right))
    if left.source is not None and left.source == right.source and homes[0] != homes[1]:
        return (
            f"{left.name!r} ({left.source}) was loaded twice, as Python modules {homes[0]!r} and {homes[1]!r}: "
            f"start it with `towline run {left.source.file}`, or import it under one name"
        )
    return (
        f"two modules are named {left.name!r}, at {left.source} and at {right.source}: rename one, or give it name=..."
    )


def _python_module(spec: ModuleSpec) -> str:
    return str(getattr(spec.code, "__module__", ""))
