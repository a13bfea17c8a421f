"""Classes as modules: frozen records of their parameters, with a body."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import field
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import pytest

from towline import (
    Context,
    DeclarationError,
    ExpandedModule,
    Module,
    SyncContext,
    UndeclaredDependencyError,
    module,
    outcome_of,
    result_of,
)
from towline.modules import resolve_types, spec_of
from towline.testing import clause

ANY_CONTEXT: Any = None


class Region(Enum):
    EU = "eu"
    US = 2


@module
async def wheel(ctx: Context) -> str:
    return "w"


class Deploy(Module[str], timeout=60, produces={"log": "deploy.log"}):
    region: str
    wheel: str = result_of(wheel)
    replicas: int = 2
    verbose: bool = False

    def run(self, ctx: SyncContext) -> str:
        return f"{self.wheel}@{self.region}x{self.replicas}"


@clause("MOD-01")
def test_class_gives_a_spec_with_its_parameters_and_edges() -> None:
    """The second form of a module is no second kind of module."""
    spec = spec_of(Deploy("eu", replicas=3))

    assert (spec.kind, spec.sync, spec.settings.timeout_s) == ("class", True, 60.0)
    assert spec.arguments == (("region", "eu"), ("replicas", 3), ("verbose", False))
    assert [(edge.param, edge.use) for edge in spec.edges] == [("wheel", "value")]
    assert spec.call(ANY_CONTEXT, {"wheel": "w"}, None) == "w@eux3"
    assert resolve_types(spec).result_type is str


@clause("MOD-03")
@pytest.mark.parametrize(
    ("instance", "name"),
    [
        (lambda: Deploy("eu"), "Deploy(eu)"),
        (lambda: Deploy("eu", 2), "Deploy(eu)"),
        (lambda: Deploy("eu", 6), "Deploy(eu, 6)"),
        (lambda: Deploy("eu", verbose=True), "Deploy(eu, verbose=True)"),
        (lambda: Deploy("eu", name="deploy-europe"), "deploy-europe"),
    ],
)
def test_instance_is_named_by_what_makes_it_differ(instance: Any, name: str) -> None:
    """Two instances have two names, and one that was written in two ways has one."""
    assert instance().name == name
    assert spec_of(instance()).name == name


@clause("MOD-03")
def test_value_without_a_text_needs_a_name() -> None:
    """The text of a path or a list is long, and differs between machines."""

    class Pack(Module[None], name="pack"):
        what: Any

        def run(self, ctx: SyncContext) -> None: ...

    assert Pack(Region.EU).name == "pack(eu)"
    assert Pack(Region.US).name == "pack(2)"
    for value in (Path("a"), ["a"], 1.5, "ä"):
        with pytest.raises(DeclarationError, match=r"pack .*name="):
            Pack(value)
        assert Pack(value, name="ok").name == "ok"


@clause("MOD-05")
def test_equal_instances_are_one_module() -> None:
    """So ``result_of(Deploy("eu"))`` can be written where it is used."""
    assert Deploy("eu") == Deploy("eu", replicas=2)
    assert Deploy("eu") != Deploy("us")
    assert Deploy("eu") != Deploy("eu", name="other")
    assert len({Deploy("eu"), Deploy("eu")}) == 1


@clause("MOD-30")
def test_instance_is_frozen_in_every_mode() -> None:
    """An attribute that a body sets would be there in one mode and lost in the others."""

    class Writes(Module[None]):
        seen: str = "never"

        def run(self, ctx: SyncContext) -> None:
            self.seen = "now"  # type: ignore[misc]

    with pytest.raises(AttributeError, match="seen"):
        spec_of(Writes).call(ANY_CONTEXT, {}, None)
    with pytest.raises(AttributeError):
        Deploy("eu").other = 1  # type: ignore[attr-defined]


@clause("MOD-11")
def test_class_that_needs_arguments_stands_for_no_module() -> None:
    """``after=[Deploy]`` would not say which Deploy."""
    with pytest.raises(DeclarationError, match=r"Deploy .*needs region: write an instance"):
        spec_of(Deploy)  # type: ignore[arg-type]

    class Publish(Module[None]):
        def run(self, ctx: SyncContext) -> None: ...

    assert spec_of(Publish) is spec_of(Publish)
    assert spec_of(Publish).name == "Publish"


@clause("MOD-11")
def test_own_constructor_is_refused() -> None:
    """Parameters that only code knows could neither be compared nor shown."""
    with pytest.raises(DeclarationError, match="annotated fields"):

        class Own(Module[None]):
            def __init__(self, region: str) -> None: ...

            def run(self, ctx: SyncContext) -> None: ...


@clause("MOD-11")
@pytest.mark.parametrize("reserved", ["name", "run", "before", "after", "artifact"])
def test_parameter_cannot_take_the_name_of_a_method(reserved: str) -> None:
    """The field would hide the method, or the method the field."""
    with pytest.raises(DeclarationError, match=f"parameter='{reserved}'"):
        type("Bad", (Module,), {"__annotations__": {reserved: str}})


def test_parameters_follow_the_rules_of_records() -> None:
    """A shared mutable default is one list for all instances."""
    with pytest.raises(DeclarationError, match="default_factory"):

        class Mutable(Module[None]):
            names: list[str] = []  # noqa: RUF012 - this is what is refused

            def run(self, ctx: SyncContext) -> None: ...

    class Fresh(Module[None]):
        limit: ClassVar[int] = 3
        names: list[str] = field(default_factory=list)

        def run(self, ctx: SyncContext) -> None: ...

    assert spec_of(Fresh).arguments == (("names", []),)
    assert spec_of(Fresh).name == "Fresh"


def test_class_without_a_body_is_a_base_for_modules() -> None:
    """What modules share is written once: parameters, dependencies, settings and hooks."""

    class Load(Module[int], timeout=7, name="base"):
        table: str
        wheel: str = result_of(wheel)

        def before(self, ctx: SyncContext) -> None: ...

    class LoadPlanes(Load, retries=2):
        batch: int = 500

        def run(self, ctx: SyncContext) -> int:
            return self.batch

    spec = spec_of(LoadPlanes("planes"))
    assert (spec.name, spec.settings.timeout_s) == ("LoadPlanes(planes)", 7.0)
    assert spec.settings.retries is not None
    assert [edge.param for edge in spec.edges] == ["wheel"]
    assert list(spec.hooks) == ["before"]
    assert resolve_types(spec).result_type is int
    with pytest.raises(DeclarationError, match="base for modules"):
        spec_of(Load("x"))


def test_subclass_may_put_a_value_in_place_of_a_dependency() -> None:
    """What is overridden is not waited for."""

    class Base(Module[str]):
        wheel: str = result_of(wheel)

        def run(self, ctx: SyncContext) -> str:
            return self.wheel

    class Fixed(Base):
        wheel: str = "fixed"

    assert spec_of(Fixed).edges == ()
    assert spec_of(Fixed).call(ANY_CONTEXT, {}, None) == "fixed"


T = TypeVar("T")
U = TypeVar("U")


class Pair(Module[tuple[T, U]], Generic[T, U]):
    pass


class Named(Pair[str, U], Generic[U]):
    pass


class Real(Named[int]):
    def run(self, ctx: SyncContext) -> tuple[str, int]:
        return "a", 1


class Plain(Module[U], Generic[U]):
    pass


class RealPlain(Plain[int]):
    def run(self, ctx: SyncContext) -> int:
        return 1


def test_result_type_is_found_through_generic_bases() -> None:
    """A base may leave the result to its subclasses."""
    assert resolve_types(spec_of(RealPlain)).result_type is int
    assert resolve_types(spec_of(Real)).result_type == tuple[str, int]


def test_abstract_bases_work() -> None:
    """The class statement goes through ABCMeta then, and still finds the user's frame."""

    class Shape(Module[int], ABC):
        @abstractmethod
        def size(self) -> int: ...

        def run(self, ctx: SyncContext) -> int:
            return self.size()

    class Square(Shape):
        side: int = 2

        def size(self) -> int:
            return self.side**2

    spec = spec_of(Square)
    assert str(spec.source).startswith(__file__)
    assert spec.call(ANY_CONTEXT, {}, None) == 4


@clause("MOD-18")
def test_expanded_class_needs_exactly_one_expansion() -> None:
    """Its base says that there are many tasks; a keyword has to say which."""

    class Test(ExpandedModule[int], matrix={"python": ["3.11", "3.12"]}):
        def run(self, ctx: SyncContext) -> int:
            return len(ctx.matrix["python"])

    assert spec_of(Test).matrix == {"python": ("3.11", "3.12")}
    with pytest.raises(DeclarationError, match="needs matrix or each"):

        class Neither(ExpandedModule[int]):  # type: ignore[call-arg]
            def run(self, ctx: SyncContext) -> int:
                return 1

    with pytest.raises(DeclarationError, match="not together with each"):

        class Both(ExpandedModule[int], matrix={"a": [1]}, each=[1]):  # type: ignore[call-arg]
            def run(self, ctx: SyncContext) -> int:
                return 1

    with pytest.raises(DeclarationError, match="ExpandedModule"):

        class Wrong(Module[int], matrix={"a": [1]}):  # type: ignore[call-arg]
            def run(self, ctx: SyncContext) -> int:
                return 1


@clause("RUN-04")
def test_hooks_are_those_that_the_class_overrides() -> None:
    """A hook that nobody wrote costs no task anything."""

    class Watched(Module[int]):
        wheel: str = result_of(wheel)
        heard: ClassVar[list[Any]] = []

        def run(self, ctx: SyncContext) -> int:
            return 1

        def before(self, ctx: SyncContext) -> None:
            self.heard.append(("before", self.wheel))

        def on_failed(self, ctx: SyncContext, outcome: Any) -> None:
            self.heard.append(outcome)

    hooks = spec_of(Watched).hooks
    hooks["before"](ANY_CONTEXT, inputs={"wheel": "w"})
    hooks["on_failed"](ANY_CONTEXT, "failed", inputs={"wheel": "w"})

    assert list(hooks) == ["before", "on_failed"]
    assert Watched.heard == [("before", "w"), "failed"]
    assert spec_of(Deploy("eu")).hooks == {}


@clause("RUN-04")
def test_hook_with_other_parameters_is_refused() -> None:
    """It would fail at the end of the task, in a place that changes nothing and is easily overlooked."""
    with pytest.raises(DeclarationError, match=r"after=.*\(self, ctx, outcome\)"):

        class Wrong(Module[int]):
            def run(self, ctx: SyncContext) -> int:
                return 1

            def after(self, ctx: SyncContext) -> None: ...  # type: ignore[override]

    with pytest.raises(DeclarationError, match=r"run=.*annotated fields"):

        class TwoParameters(Module[int]):
            def run(self, ctx: SyncContext, region: str) -> int:  # type: ignore[override]
                return 1


@clause("MOD-15")
def test_field_without_its_value_says_which_dependency_it_is() -> None:
    """In a unit test ``Deploy("eu").wheel`` stands for nothing yet."""
    with pytest.raises(UndeclaredDependencyError, match=r"result_of\(wheel\)"):
        Deploy("eu").wheel.upper()


def test_artifact_is_asked_of_class_and_instance() -> None:
    """Instances have artifacts of their own; a class without parameters stands for its only one."""
    eu = Deploy("eu")

    class Publish(Module[None], consumes=[eu.artifact("log", into="logs")]):
        how: Any = outcome_of(eu)

        def run(self, ctx: SyncContext) -> None: ...

    [use] = spec_of(Publish).settings.consumes
    assert (use.module.name, use.artifact, use.into) == ("Deploy(eu)", "log", "logs")
    assert Publish.artifact("x").module is Publish
