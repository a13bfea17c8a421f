"""From whatever stands for a module in a declaration to its spec (MOD-01)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from towline.errors.declaration import DeclarationError
from towline.modules.kinds import is_module
from towline.modules.spec import ModuleRef

if TYPE_CHECKING:
    from towline.modules.kinds import AnyModule
    from towline.modules.spec import ModuleSpec


def spec_of(module: AnyModule) -> ModuleSpec:
    """Give the spec of a function module, an instance of a class module, or a class that needs no arguments.

    The same declaration always gives the same spec, and a class the one of its only instance.

    Raises:
        DeclarationError: It is no module, has no ``run``, or is a class that needs arguments.
    """
    if not is_module(module):
        allowed = (
            "decorate the function with @module"
            if callable(module)
            else "a module: a decorated function, a class or an instance"
        )
        raise DeclarationError("the list of modules", "module", module, allowed)
    declared: Any = module
    if isinstance(module, type):
        declared = declared.towline_declaration.only_instance()
    return cast("ModuleSpec", declared.towline_spec)


def reference_to(module: AnyModule) -> ModuleRef:
    """Make the reference by which an edge brings a module along."""
    spec = spec_of(module)
    return ModuleRef(spec.name, spec)
