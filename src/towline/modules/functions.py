"""Modules as functions: the ``@module`` decorator (MOD-01, MOD-11, MOD-15)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

from towline.errors.declaration import UndeclaredDependencyError
from towline.modules.current import current_attempt
from towline.modules.kinds import ManyTasks, OneTask
from towline.modules.settings import ArtifactRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Unpack

    from towline.modules.context import Context, SyncContext
    from towline.modules.kinds import Axes, Items
    from towline.modules.settings import Settings
    from towline.modules.spec import ModuleSpec

T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)
P = ParamSpec("P")
Item = TypeVar("Item")


class _Declared(Generic[P, R_co]):
    """What both kinds of function modules do: stand in declarations, and be called in unit tests."""

    name: str
    towline_spec: ModuleSpec
    """The spec of this module, for the planner."""

    def __init__(self, body: Callable[P, R_co], name: str) -> None:
        self.name = name
        self.__wrapped__ = body
        self.__name__, self.__doc__ = getattr(body, "__name__", name), body.__doc__
        self.__qualname__, self.__module__ = getattr(body, "__qualname__", name), body.__module__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the plain function, as a unit test does; every dependency has to be passed.

        Raises:
            UndeclaredDependencyError: Called inside a running body, which has to declare what it needs, or
                without a value for a dependency.
        """
        reader = current_attempt.get()
        if reader is not None:
            raise UndeclaredDependencyError(reader.task_id, self.name)
        if self.towline_spec.edges:
            self._check_given(len(args), kwargs)
        return self.__wrapped__(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<module {self.name}>"

    def _check_given(self, positional: int, by_name: dict[str, Any]) -> None:
        code = self.towline_spec.code.__code__
        given = {*code.co_varnames[: min(positional, code.co_argcount)], *by_name}
        for edge in self.towline_spec.edges:
            if edge.param is not None and edge.param not in given:
                read = getattr(edge.to, "name", None) or f"{edge.to}"
                raise UndeclaredDependencyError(f"the call of {self.name}", read, edge.param)


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


def _declare(body: Any, settings: dict[str, Any]) -> Any:
    from towline.modules.function_declaration import declare_function

    return declare_function(body, settings)
