"""Dependencies are declared where their values are used, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest

from towline import (
    Context,
    DeclarationError,
    Module,
    Selector,
    SyncContext,
    in_category,
    maybe_result_of,
    module,
    outcome_of,
    result_of,
    tagged,
)
from towline.modules import spec_of
from towline.modules.spec import Edge, ModuleRef, SelectorRef
from towline.testing import clause

OF_X = in_category("X")


@module
async def build(ctx: Context) -> int:
    return 1


@module(matrix={"python": ["3.11", "3.12"]})
async def check(ctx: Context, python: str) -> int:
    return 1


class Deploy(Module[str]):
    region: str

    def run(self, ctx: SyncContext) -> str:
        return self.region


@clause("MOD-13")
def test_edges_say_how_a_value_is_used() -> None:
    """Planner, scheduler and resume ask one rule what each use needs; it starts with these words."""

    @module(after=[build, Deploy("eu"), tagged("DB")])
    async def publish(
        ctx: Context,
        value: int = result_of(build),
        maybe: int | None = maybe_result_of(build),
        how: Any = outcome_of(build),
    ) -> None: ...

    assert [(edge.param, edge.use) for edge in spec_of(publish).edges] == [
        ("value", "value"),
        ("maybe", "optional"),
        ("how", "outcome"),
        (None, "order"),
        (None, "order"),
        (None, "order"),
    ]


@clause("MOD-12")
def test_edge_brings_the_spec_of_its_module_along() -> None:
    """A pipeline is given its last modules; what they need is found from them."""

    @module
    async def last(ctx: Context, value: int = result_of(build), where: str = result_of(Deploy("eu"))) -> None: ...

    first, second = (edge.to for edge in spec_of(last).edges)
    assert isinstance(first, ModuleRef)
    assert first.spec is spec_of(build)
    assert isinstance(second, ModuleRef)
    assert second.name == "Deploy(eu)"


@clause("MOD-16")
def test_selector_refers_to_tag_or_category_without_case() -> None:
    """``tagged("DB")`` and a module's ``tags={"db"}`` mean the same."""

    @module
    async def gather(
        ctx: Context, counts: list[int] = result_of(tagged("Db", result=int)), rest: Any = outcome_of(OF_X)
    ) -> None: ...

    targets = [edge.to for edge in spec_of(gather).edges]
    assert targets == [SelectorRef("tag", "db", int), SelectorRef("category", "x", object)]
    assert repr(tagged("db")) == "tagged('db')"
    for wrong in ("", 3):
        with pytest.raises(DeclarationError, match="tagged"):
            tagged(wrong)  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match="tagged"):
        Selector[int]()


@clause("MOD-19")
def test_keys_are_paired_only_with_a_module_that_has_keys() -> None:
    """``same_key`` of a module with one task would mean nothing."""

    @module(matrix={"python": ["3.11"]})
    async def smoke(ctx: Context, python: str, tested: int = result_of(check, same_key=True)) -> None: ...

    [edge] = spec_of(smoke).edges
    assert edge.same_key
    for wrong in (build, Deploy, tagged("db")):
        with pytest.raises(DeclarationError, match="same_key"):
            result_of(wrong, same_key=True)  # type: ignore[call-overload]


@clause("MOD-20")
def test_each_walks_items_or_the_result_of_a_module() -> None:
    """Items that are known are given; others are found while the pipeline runs."""

    @module(each=result_of(build))
    async def late(ctx: Context, item: int) -> int:
        return item

    @module(each={"a": 1, "b": 2})
    async def known(ctx: Context, item: int) -> int:
        return item

    @module(each=[1, 2])
    async def listed(ctx: Context, item: int) -> int:
        return item

    late_each = spec_of(late).each
    assert isinstance(late_each, Edge)
    assert late_each.use == "value"
    assert spec_of(late).edges == ()
    assert spec_of(known).each == {"a": 1, "b": 2}
    assert spec_of(listed).each == (1, 2)
    assert all(spec_of(one).is_expanded for one in (late, known, listed))
    with pytest.raises(DeclarationError, match="each"):

        @module(each={1: "a"})
        async def wrong(ctx: Context, item: int) -> int:
            return item


def a_function(ctx: SyncContext) -> int:
    return 1


@clause("MOD-08")
@pytest.mark.parametrize("marker", [result_of, maybe_result_of, outcome_of])
@pytest.mark.parametrize("wrong", ["build", a_function, 3, None, str])
def test_what_is_no_module_is_refused_where_it_is_named(marker: Any, wrong: Any) -> None:
    """A name would bind at run time to whatever has it then; a plain function has no task."""
    with pytest.raises(DeclarationError, match="a module"):
        marker(wrong)


@clause("MOD-08")
def test_class_that_needs_arguments_is_refused_by_who_depends_on_it() -> None:
    """The question is which one, and the error asks it."""
    with pytest.raises(DeclarationError, match="needs region"):

        @module
        async def publish(ctx: Context, where: str = result_of(Deploy)) -> None: ...  # type: ignore[arg-type]


def test_what_a_pipeline_is_given_must_be_modules() -> None:
    """``spec_of`` is the door to planning, also for what a user got wrong."""
    for wrong, hint in ((a_function, "@module"), ("build", "decorated function"), (None, "decorated function")):
        with pytest.raises(DeclarationError, match=hint):
            spec_of(wrong)  # type: ignore[arg-type]


def test_long_chain_of_modules_is_declared_and_forgotten() -> None:
    """Nothing on the way walks the chain by recursion."""
    last: Any = build
    for number in range(5_000):

        @module(name=f"link{number}")
        async def link(ctx: Context, value: int = result_of(last)) -> int:
            return value

        last = link
    assert repr(spec_of(last).edges[0].to) == "ModuleRef('link4998')"
