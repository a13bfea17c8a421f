"""Modules as functions: the ``@module`` decorator (MOD-01, MOD-11, MOD-15)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

import msgspec

from towline.errors.declaration import UndeclaredDependencyError
from towline.modules.annotations import annotation_in
from towline.modules.bodies import Signature, check_context, read_body, read_signature
from towline.modules.checking import Declaring, checked_name, checked_settings
from towline.modules.current import current_task
from towline.modules.dependencies import axes_of, each_of, edges_of, uses_of
from towline.modules.kinds import ManyTasks, OneTask
from towline.modules.scope import place_of_function
from towline.modules.settings import ArtifactRequest
from towline.modules.spec import ModuleSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Unpack

    from towline.modules.context import Context, SyncContext
    from towline.modules.kinds import Axes, Items
    from towline.modules.settings import Settings

T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)
P = ParamSpec("P")
Item = TypeVar("Item")


class _Declared(Generic[P, R_co]):
    """What both kinds of function modules do: stand in declarations, and be called in unit tests."""

    name: str

    def __init__(self, body: Callable[P, R_co], spec: ModuleSpec) -> None:
        self.name = spec.name
        self.__wrapped__ = body
        self.__name__, self.__doc__ = getattr(body, "__name__", spec.name), body.__doc__
        self.__qualname__, self.__module__ = getattr(body, "__qualname__", spec.name), body.__module__
        self._spec = spec

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the plain function, as a unit test does; every dependency has to be passed.

        Raises:
            UndeclaredDependencyError: Called inside a running body, which has to declare what it needs, or
                without a value for a dependency.
        """
        reader = current_task.get()
        if reader is not None:
            raise UndeclaredDependencyError(reader, self.name)
        if self._spec.edges:
            self._check_given(len(args), kwargs)
        return self.__wrapped__(*args, **kwargs)

    def declared_spec(self) -> ModuleSpec:
        """The spec of this module, for the planner."""
        return self._spec

    def __repr__(self) -> str:
        return f"<module {self.name}>"

    def _check_given(self, positional: int, by_name: dict[str, Any]) -> None:
        code = self._spec.code.__code__
        given = {*code.co_varnames[: min(positional, code.co_argcount)], *by_name}
        for edge in self._spec.edges:
            if edge.param is not None and edge.param not in given:
                read = getattr(edge.to, "name", None) or f"{edge.to}"
                raise UndeclaredDependencyError(f"the call of {self.name} without {edge.param}", read)


class FunctionModule(_Declared[P, R_co], OneTask[T], Generic[P, R_co, T]):
    """A module made by ``@module``; calling it outside a run calls the plain function."""

    def artifact(self, name: str, *, into: str = ".") -> ArtifactRequest:
        """Ask, in ``consumes``, for what ``produces`` calls ``name``; it is restored below ``into``."""
        return ArtifactRequest(self, name, into)


class ExpandedFunction(_Declared[P, R_co], ManyTasks[T], Generic[P, R_co, T]):
    """A function module with ``matrix`` or ``each``: one task per key; dependents see a list."""

    def artifact(self, name: str, *, into: str = ".", same_key: bool = False) -> ArtifactRequest:
        """Ask for the artifact of every key, each in a folder of its own, or of the asker's key."""
        return ArtifactRequest(self, name, into, same_key)


class _Declare(Protocol):
    @overload
    def __call__(
        self, body: Callable[Concatenate[Context, P], Coroutine[Any, Any, T]], /
    ) -> FunctionModule[Concatenate[Context, P], Coroutine[Any, Any, T], T]: ...
    @overload
    def __call__(
        self, body: Callable[Concatenate[SyncContext, P], T], /
    ) -> FunctionModule[Concatenate[SyncContext, P], T, T]: ...


class _DeclareMatrix(Protocol):
    @overload
    def __call__(
        self, body: Callable[Concatenate[Context, P], Coroutine[Any, Any, T]], /
    ) -> ExpandedFunction[Concatenate[Context, P], Coroutine[Any, Any, T], T]: ...
    @overload
    def __call__(
        self, body: Callable[Concatenate[SyncContext, P], T], /
    ) -> ExpandedFunction[Concatenate[SyncContext, P], T, T]: ...


class _DeclareEach(Protocol[Item]):
    @overload
    def __call__(
        self, body: Callable[Concatenate[Context, Item, P], Coroutine[Any, Any, T]], /
    ) -> ExpandedFunction[Concatenate[Context, Item, P], Coroutine[Any, Any, T], T]: ...
    @overload
    def __call__(
        self, body: Callable[Concatenate[SyncContext, Item, P], T], /
    ) -> ExpandedFunction[Concatenate[SyncContext, Item, P], T, T]: ...


@overload
def module(
    body: Callable[Concatenate[Context, P], Coroutine[Any, Any, T]], /
) -> FunctionModule[Concatenate[Context, P], Coroutine[Any, Any, T], T]: ...
@overload
def module(body: Callable[Concatenate[SyncContext, P], T], /) -> FunctionModule[Concatenate[SyncContext, P], T, T]: ...
@overload
def module(*, matrix: Axes, **settings: Unpack[Settings]) -> _DeclareMatrix: ...
@overload
def module(*, each: Items[Item], **settings: Unpack[Settings]) -> _DeclareEach[Item]: ...
@overload
def module(**settings: Unpack[Settings]) -> _Declare: ...
def module(body: Any = None, /, **settings: Any) -> Any:
    """Declare a function as a module, bare or with settings. The context is its first parameter.

    With ``matrix`` (axis name to values) or ``each`` (a list, tuple, dict, or ``result_of`` a module) the
    module has one task per key, and its dependents see a list.

    Raises:
        DeclarationError: A setting, a parameter or the body itself cannot be meant; the text names the
            module, the setting, the value and what is allowed.
    """
    if body is not None:
        return _declare(body, settings)
    return lambda body, /: _declare(body, settings)


def _declare(function: Any, settings: dict[str, Any]) -> Any:
    declaring = Declaring(str(settings.get("name", getattr(function, "__name__", "a module"))), None)
    body = read_body(declaring, function)
    place = place_of_function(body.code, body.function.__globals__, body.function.__qualname__)
    name = checked_name(declaring, settings.get("name", function.__name__))
    matrix, each = settings.get("matrix"), settings.get("each")
    if "matrix" in settings and "each" in settings:
        declaring.refuse("matrix", matrix, "not together with each: a module expands in one way")
    checked = checked_settings(
        declaring, {key: value for key, value in settings.items() if key not in ("matrix", "each")}
    )
    if checked.isolation == "thread" and not body.sync:
        declaring.refuse("isolation", "thread", "an async body runs on the loop, or in a process")
    axes = axes_of(declaring, matrix) if "matrix" in settings else None
    items = each_of(declaring, each) if "each" in settings else None
    rest = check_context(declaring, body, place.scope)
    signature = read_signature(declaring, body, rest, axes=tuple(axes or ()), each=items is not None)
    annotations = body.function.__annotations__
    marked = ((param, marker, annotation_in(place.scope, annotations, param)) for param, marker in signature.markers)
    edges = edges_of(declaring, marked, settings, always_run=checked.always_run)
    if "consumes" in settings:
        checked = msgspec.structs.replace(checked, consumes=uses_of(declaring, settings["consumes"]))
    kind = FunctionModule if axes is None and items is None else ExpandedFunction
    declared: Any = kind.__new__(kind)
    declared.__init__(
        function,
        ModuleSpec(
            name=name,
            kind="function",
            sync=body.sync,
            call=_caller(function, signature),
            declared=declared,
            result_type=annotation_in(place.scope, annotations, "return"),
            edges=edges,
            settings=checked,
            matrix=axes,
            each=items,
            code=body.function,
            source=place.source,
        ),
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
