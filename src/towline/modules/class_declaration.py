"""What is worked out when a module class is declared: settings, fields, result type, hooks, and the spec of each instance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from towline.modules.annotations import annotation_in
from towline.modules.bodies import NO_DEFAULT, Body, check_context, is_async, read_body
from towline.modules.checking import Declaring, checked_name, checked_settings
from towline.modules.classes import HOOKS, ClassModule
from towline.modules.dependencies import MarkedField, edges_of, uses_of
from towline.modules.expansions import expansion_of
from towline.modules.instances import arguments, bound, freeze, instance_name
from towline.modules.result_types import result_type_of
from towline.modules.scope import place_of_class
from towline.modules.spec import ModuleSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from towline.modules.scope import Scope
    from towline.modules.spec import Edge, ModuleSettings


class ClassDeclaration:
    """One module class as declared; ``written`` are its settings with those of its bases, ``marked`` its marker fields."""

    def __init__(
        self, cls: type[Any], declaring: Declaring, scope: Scope, written: Mapping[str, Any], *, expanded: bool
    ) -> None:
        self.cls, self.declaring, self.written, self.expanded = cls, declaring, written, expanded
        self.marked = self._marked(freeze(cls, declaring), scope)
        self.settings: ModuleSettings = checked_settings(declaring, written, expandable=expanded)
        self.edges: tuple[Edge, ...] = edges_of(declaring, self.marked, written, always_run=self.settings.always_run)
        if "consumes" in written:
            self.settings = msgspec.structs.replace(self.settings, consumes=uses_of(declaring, written["consumes"]))
        self.expansion = expansion_of(declaring, written)
        self.result_type = result_type_of(cls, scope)
        self.body = self._body(scope)
        self.hooks = {
            hook: getattr(cls, hook) for hook in HOOKS if getattr(cls, hook) is not getattr(ClassModule, hook)
        }
        for hook, function in self.hooks.items():
            check_context(declaring, read_body(declaring, function), scope, method=True)
            self._check_arity(hook, function, 2 if hook == "before" else 3)
        self._only: Any = None

    def only_instance(self) -> Any:
        """The instance that the class stands for."""
        if self._only is None:
            from dataclasses import fields

            required = [one for one in fields(self.cls) if _is_required(one)]
            if required:
                names = ", ".join(one.name for one in required)
                example = f"{self.cls.__name__}(...)"
                self.declaring.refuse(
                    "module", self.cls.__name__, f"the class needs {names}: write an instance, {example}"
                )
            self._only = self.cls()
        return self._only

    def name_of(self, instance: Any) -> str:
        """Give the name of an instance: the one it was given, or one made of its parameters (MOD-03).

        Raises:
            DeclarationError: It is not allowed. A parameter that cannot be shown in a name shows as ``?``,
                which is not.
        """
        return checked_name(self.declaring, instance.name or instance_name(instance, self.declaring.module))

    def spec_of(self, instance: Any) -> ModuleSpec:
        """Make the spec of one instance."""
        if self.body is None:
            self.declaring.refuse("run", self.cls.__name__, "a class without run is a base for modules, and no module")
        return ModuleSpec(
            name=instance.name,
            kind="class",
            sync=self.body.sync,
            call=lambda ctx, inputs, item: bound(instance, inputs).run(ctx),
            declared=instance,
            result_type=self.result_type,
            edges=self.edges,
            settings=self.settings,
            hooks={name: _bound_hook(instance, name, function) for name, function in self.hooks.items()},
            arguments=arguments(instance),
            matrix=self.expansion.matrix,
            each=self.expansion.each,
            code=self.cls,
            source=self.declaring.source,
        )

    def _marked(self, own: Mapping[str, Any], scope: Scope) -> tuple[MarkedField, ...]:
        inherited = {
            name: (name, marker, annotation)
            for base in reversed(self.cls.__mro__[1:])
            if (declaration := base.__dict__.get("towline_declaration")) is not None
            for name, marker, annotation in declaration.marked
        }
        names = self.cls.__dict__
        annotations = names.get("__annotations__", {})
        for name in [one for one in inherited if one in names and one not in own]:
            del inherited[name]
        inherited.update(
            (name, (name, marker, annotation_in(scope, annotations, name))) for name, marker in own.items()
        )
        return tuple(inherited.values())

    def _body(self, scope: Scope) -> Body | None:
        run = self.cls.run
        if run is ClassModule.run:
            return None
        body = read_body(self.declaring, run)
        check_context(self.declaring, body, scope, method=True)
        self._check_arity("run", run, 2)
        if self.settings.isolation == "thread" and not body.sync:
            self.declaring.refuse("isolation", "thread", "an async body runs on the loop, or in a process")
        return body

    def _check_arity(self, method: str, function: Any, count: int) -> None:
        parameters = read_body(self.declaring, function).parameters
        needed = [one for one in parameters if one.default is NO_DEFAULT]
        if len(needed) > count or len(parameters) < count:
            wanted = "(self, ctx)" if count == 2 else "(self, ctx, outcome)"
            hint = "; parameters are annotated fields of the class" if method == "run" else ""
            self.declaring.refuse(method, [one.name for one in parameters], f"it takes {wanted}{hint}")


def declare_class(cls: type[Any], settings: dict[str, Any], *, expanded: bool) -> None:
    """Carry out what a class statement says: check it, freeze the class, keep the declaration on it.

    Raises:
        DeclarationError: A setting, a field, ``run`` or a hook cannot be meant.
    """
    place = place_of_class()
    declaring = Declaring(settings.get("name", cls.__name__), place.source)
    checked_name(declaring, declaring.module)
    if expanded and "matrix" not in settings and "each" not in settings:
        declaring.refuse("matrix", None, "an ExpandedModule needs matrix or each; without either derive from Module")
    written: dict[str, Any] = {}
    for base in reversed(cls.__mro__[1:]):
        declaration = base.__dict__.get("towline_declaration")
        if declaration is not None:
            written.update(_inherited(declaration.written))
    written.update(settings)
    cls.towline_declaration = ClassDeclaration(cls, declaring, place.scope, written, expanded=expanded)


def _inherited(written: Mapping[str, Any]) -> dict[str, Any]:
    return {setting: value for setting, value in written.items() if setting not in ("name", "matrix", "each")}


def _is_required(one: Any) -> bool:
    from dataclasses import MISSING

    return one.init and one.default is MISSING and one.default_factory is MISSING


def _bound_hook(instance: Any, name: str, function: Any) -> Callable[..., Any]:
    """Make the call of a hook: ``hook(ctx, outcome)``, with the values of the task in ``inputs`` where they are known."""
    if is_async(function):

        async def async_hook(ctx: Any, *outcome: Any, inputs: dict[str, Any] | None = None) -> None:
            await getattr(bound(instance, inputs or {}), name)(ctx, *outcome)

        return async_hook

    def sync_hook(ctx: Any, *outcome: Any, inputs: dict[str, Any] | None = None) -> None:
        getattr(bound(instance, inputs or {}), name)(ctx, *outcome)

    return sync_hook
