"""Annotations are texts until the plan is built, and then mean what they meant where they were written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import towline
from towline import Context, DeclarationError, ExpandedModule, Module, SyncContext, module, result_of
from towline.modules import resolve_types, spec_of
from towline.testing import clause

if TYPE_CHECKING:
    from decimal import Decimal


@dataclass(frozen=True)
class Wheel:
    path: Path


@module
async def build(ctx: Context) -> Wheel:
    return Wheel(Path())


@module
async def listing(ctx: towline.Context, wheel: Wheel = result_of(build)) -> list[Wheel] | None:
    return [wheel]


@module
async def nothing(ctx: Context) -> None: ...


@module
async def unsaid(ctx: Context, wheel=result_of(build)): ...  # type: ignore[no-untyped-def]


@clause("MOD-11")
def test_texts_become_types_when_the_plan_is_built() -> None:
    """``from __future__ import annotations`` is the common way to write a file."""
    assert resolve_types(spec_of(build)).result_type is Wheel
    assert resolve_types(spec_of(listing)).result_type == list[Wheel] | None
    assert resolve_types(spec_of(nothing)).result_type is type(None)
    assert resolve_types(spec_of(listing)).edges[0].annotation is Wheel
    assert resolve_types(spec_of(unsaid)).result_type is Any
    assert resolve_types(spec_of(unsaid)).edges[0].annotation is Any


def test_types_of_all_that_is_referred_to_are_resolved_too() -> None:
    """A pipeline is given its last modules; encoding needs the types of every one."""

    @module
    async def first(ctx: Context) -> Mapping[str, int]:
        return {}

    @module
    async def source(ctx: Context, one: Mapping[str, int] = result_of(first)) -> list[int]:
        return []

    class Late(ExpandedModule[int], each=result_of(source)):
        def run(self, ctx: SyncContext) -> int:
            return 1

    resolve_types(spec_of(Late))

    assert spec_of(source).result_type == list[int]
    assert spec_of(first).result_type == Mapping[str, int]


def test_names_of_the_surrounding_function_are_found() -> None:
    """Tests declare modules beside the types that they use."""

    @dataclass(frozen=True)
    class Local:
        value: int

    @module
    async def make(ctx: Context) -> list[Local]:
        return []

    class Take(Module[Local]):
        many: list[Local] = result_of(make)

        async def run(self, ctx: Context) -> Local:
            return self.many[0]

    assert resolve_types(spec_of(make)).result_type == list[Local]
    assert resolve_types(spec_of(Take)).edges[0].annotation == list[Local]
    assert resolve_types(spec_of(Take)).result_type is Local


def test_type_for_checkers_only_is_refused_with_that_advice() -> None:
    """The engine has to encode the value, so it has to know its type."""

    @module
    async def price(ctx: Context) -> Decimal:
        raise NotImplementedError

    with pytest.raises(DeclarationError, match=r"price .*'Decimal'.*TYPE_CHECKING"):
        resolve_types(spec_of(price))


def test_annotation_that_is_no_type_is_refused_by_name() -> None:
    """A slip in an annotation is a wrong declaration, not a crash of the planner."""

    @module
    async def odd(ctx: Context) -> "list[":  # type: ignore[valid-type]  # noqa: F722
        return []

    with pytest.raises(DeclarationError, match=r"odd .*result type"):
        resolve_types(spec_of(odd))


def test_resolving_again_after_an_error_works() -> None:
    """In a notebook the missing import is added, and the plan built again."""
    namespace: dict[str, Any] = {}
    code = (
        "from __future__ import annotations\nfrom towline import module, Context\n"
        "@module\nasync def later(ctx: Context) -> Missing: ...\n"
    )
    exec(code, namespace)
    with pytest.raises(DeclarationError, match="Missing"):
        resolve_types(spec_of(namespace["later"]))

    namespace["Missing"] = Wheel

    assert resolve_types(spec_of(namespace["later"])).result_type is Wheel


@clause("RUN-61")
def test_context_may_be_imported_for_checkers_only() -> None:
    """The engine finds the context by its place and never evaluates its annotation."""
    namespace: dict[str, Any] = {}
    declaration = "from towline import module\n@module\nasync def body(ctx: 'Context') -> int: ...\n"
    exec(declaration, namespace)

    assert resolve_types(spec_of(namespace["body"])).result_type is int
    with pytest.raises(DeclarationError, match="not a SyncContext"):
        exec(declaration.replace("Context", "SyncContext"), {})


def test_long_chain_resolves_without_recursion() -> None:
    """A plan may be longer than Python's stack is deep (SCHED-24)."""
    last: Any = build
    for number in range(3_000):

        @module(name=f"link{number}")
        async def link(ctx: Context, value: Wheel = result_of(last)) -> Wheel:
            return value

        last = link

    resolve_types(spec_of(last))

    assert spec_of(build).result_type is Wheel
