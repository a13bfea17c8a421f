"""Modules as classes: a frozen record of parameters with a ``run`` (MOD-01, MOD-11, MOD-30)."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, dataclass_transform, overload

from towline.modules.kinds import ManyTasks, OneTask
from towline.modules.markers import maybe_result_of, outcome_of, result_of
from towline.modules.settings import ArtifactRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from dataclasses import field
    from typing import Unpack

    from towline.modules.class_declaration import ClassDeclaration
    from towline.modules.kinds import Axes, Items
    from towline.modules.outcomes import Failed, Outcome, Skipped, Succeeded, TimedOut
    from towline.modules.settings import Settings
    from towline.modules.spec import ModuleSpec

    @dataclass_transform(frozen_default=True, field_specifiers=(field, result_of, maybe_result_of, outcome_of))
    class _Record:
        """Makes annotated class attributes parameters, and markers dependencies, for checkers."""

else:

    @dataclass_transform(frozen_default=True, field_specifiers=(result_of, maybe_result_of, outcome_of))
    class _Record:
        """Checkers read this class in its other form; ``dataclasses`` is not imported before it is needed."""


T = TypeVar("T")

HOOKS = ("before", "on_failed", "on_skipped", "on_cached", "after")
"""What a class may override besides ``run``; each runs once per task, on the node that ran the body (RUN-04)."""


class ClassModule(_Record, Generic[T]):
    """What both kinds of class modules do."""

    towline_declaration: ClassVar[ClassDeclaration]
    """What was worked out when the class was declared; each class has its own."""

    if TYPE_CHECKING:
        name: str = field(default="", kw_only=True)

    def run(self, ctx: Any, /) -> Awaitable[T] | T:
        """Do the work: ``async`` with a ``Context``, or plain with a ``SyncContext``."""
        raise NotImplementedError

    def before(self, ctx: Any, /) -> Awaitable[None] | None:
        """Get ready, once, before the first attempt; an error fails the task without running the body."""

    def on_failed(self, ctx: Any, outcome: Failed | TimedOut, /) -> Awaitable[None] | None:
        """Act after the last attempt failed; cannot change the outcome."""

    def on_skipped(self, ctx: Any, outcome: Skipped, /) -> Awaitable[None] | None:
        """Act after a condition skipped the task on its node; dependencies may not be looked at."""

    def on_cached(self, ctx: Any, outcome: Succeeded[T], /) -> Awaitable[None] | None:
        """Act after the cache gave the result; neither body, ``before`` nor ``after`` ran."""

    def after(self, ctx: Any, outcome: Outcome[T], /) -> Awaitable[None] | None:
        """Clean up, however the task ended; cannot change the outcome."""

    @cached_property
    def towline_spec(self) -> ModuleSpec:
        """The spec of this module, for the planner."""
        return self.towline_declaration.spec_of(self)

    def __repr__(self) -> str:
        return f"<module {self.name}>"


class _Artifact:
    """Gives ``artifact`` the instance when there is one, else the class: both stand for a module."""

    def __get__(self, instance: Any, owner: type) -> Any:
        module = owner if instance is None else instance

        def artifact(name: str, *, into: str = ".", same_key: bool = False) -> ArtifactRequest:
            return ArtifactRequest(module, name, into, same_key)

        return artifact


class Module(ClassModule[T], OneTask[T]):
    """A module as a class: fields without a marker are its parameters, ``run`` is its body.

    ``Deploy("eu")`` and ``Deploy("us")`` are two modules, named ``Deploy(eu)`` and ``Deploy(us)``; equal
    instances are one. Settings are keywords of the class, and hold for classes that derive from it. A class
    without ``run`` is a base for modules.
    """

    def __init_subclass__(cls, **settings: Unpack[Settings]) -> None:
        super().__init_subclass__()
        _declare(cls, dict(settings), expanded=False)

    if TYPE_CHECKING:

        @classmethod
        def artifact(cls, name: str, *, into: str = ".") -> ArtifactRequest:
            """Ask, in ``consumes``, for what ``produces`` calls ``name``; works on class and instance."""
            ...
    else:
        artifact = _Artifact()


class ExpandedModule(ClassModule[T], ManyTasks[T]):
    """A class module with ``matrix`` or ``each``: one task per key; dependents see a list.

    ``run`` finds its key's values in ``ctx.matrix["axis"]`` or ``ctx.item``.
    """

    @overload
    def __init_subclass__(cls, *, matrix: Axes, **settings: Unpack[Settings]) -> None: ...
    @overload
    def __init_subclass__(cls, *, each: Items[Any], **settings: Unpack[Settings]) -> None: ...
    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__()
        _declare(cls, settings, expanded=True)

    if TYPE_CHECKING:

        @classmethod
        def artifact(cls, name: str, *, into: str = ".", same_key: bool = False) -> ArtifactRequest:
            """Ask for the artifact of every key, or of the asker's own key."""
            ...
    else:
        artifact = _Artifact()


def _declare(cls: type[Any], settings: dict[str, Any], *, expanded: bool) -> None:
    from towline.modules.class_declaration import declare_class

    declare_class(cls, settings, expanded=expanded)
