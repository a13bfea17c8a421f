"""Functions as modules: what a body may look like, and what the engine reads of it."""

from __future__ import annotations

import functools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from towline import (
    Context,
    DeclarationError,
    SyncContext,
    UndeclaredDependencyError,
    maybe_result_of,
    module,
    result_of,
)
from towline.modules import spec_of
from towline.modules.current import current_attempt
from towline.modules.doors import Attempt
from towline.testing import clause

ANY_CONTEXT: Any = None
"""Bodies in this file do not look at their context."""


@module
async def lockfile(ctx: Context) -> str:
    """Restore the lock file."""
    return "uv.lock"


@module(timeout=60)
def build(ctx: SyncContext, lock: str = result_of(lockfile), *, note: str | None = maybe_result_of(lockfile)) -> int:
    return len(lock)


@clause("MOD-01")
def test_function_gives_a_spec_with_its_body_edges_and_settings() -> None:
    """Planner and runner see one record, whatever the user wrote."""
    spec = spec_of(build)

    assert (spec.name, spec.kind, spec.sync, spec.settings.timeout_s) == ("build", "function", True, 60.0)
    assert [(edge.param, edge.use, getattr(edge.to, "name", None)) for edge in spec.edges] == [
        ("lock", "value", "lockfile"),
        ("note", "optional", "lockfile"),
    ]
    assert spec.call(ANY_CONTEXT, {"lock": "abc", "note": None}, None) == 3
    assert str(spec.source).startswith(f"{__file__}:")


@clause("MOD-01")
def test_the_same_declaration_always_has_the_same_spec() -> None:
    """Planner and resume compare specs by identity of what was declared."""
    assert spec_of(build) is spec_of(build)
    assert spec_of(build).declared is build


@clause("MOD-02")
def test_declaring_twice_leaves_no_trace() -> None:
    """A notebook cell that is run twice must not clash with itself."""

    def declare() -> Any:
        @module
        async def cell(ctx: Context) -> int:
            return 1

        return cell

    first, second = declare(), declare()

    assert first is not second
    assert spec_of(first).name == spec_of(second).name == "cell"


@clause("MOD-03")
def test_name_is_the_functions_unless_given() -> None:
    """People find a task by the name that they wrote."""

    @module(name="deploy to eu")
    async def deploy(ctx: Context) -> None: ...

    assert lockfile.name == "lockfile"
    assert deploy.name == "deploy to eu"


@clause("MOD-10")
def test_generator_body_is_refused_with_what_to_do() -> None:
    """A body that yields would never run: nobody iterates it."""
    with pytest.raises(DeclarationError, match=r"rows .*return a list, or walk with ctx\.cursor"):

        @module
        def rows(ctx: SyncContext) -> Any:
            yield 1

    with pytest.raises(DeclarationError, match="does not yield"):

        @module
        async def lines(ctx: Context) -> Any:
            yield 1


def without_context() -> int:
    return 1


def context_by_name(*, ctx: SyncContext) -> int:
    return 1


def context_is_a_result(wheel: str = result_of(lockfile)) -> int:
    return 1


def of_a_class(self: Any, ctx: SyncContext) -> int:
    return 1


@clause("MOD-11")
@pytest.mark.parametrize("body", [without_context, context_by_name, context_is_a_result, of_a_class])
def test_context_comes_first(body: Any) -> None:
    """The engine passes the context by position, so a body without one would get it as something else."""
    with pytest.raises(DeclarationError, match=body.__name__):
        module(body)


@clause("MOD-11")
def test_parameter_that_nothing_fills_is_refused_by_name() -> None:
    """Better at the line that declares it than as a TypeError an hour into the run."""
    with pytest.raises(DeclarationError, match=r"parameter='version'.*result_of"):

        @module
        async def publish(ctx: Context, version: str) -> None: ...

    with pytest.raises(DeclarationError, match=r"parameter='pyhton'.*Did you mean 'python'\?"):

        @module(matrix={"python": ["3.11"]})
        async def check(ctx: Context, pyhton: str) -> None: ...

    with pytest.raises(DeclarationError, match=r"parameter='item'.*each"):

        @module
        async def pack(ctx: Context, item: str) -> None: ...


@clause("MOD-11")
def test_axes_come_by_name_and_an_item_as_second_parameter() -> None:
    """What differs between the tasks of a module reaches its body."""

    @module(matrix={"python": ["3.11", "3.12"], "system": ["linux"]})
    def check(ctx: SyncContext, system: str, python: str, lock: str = result_of(lockfile)) -> str:
        return f"{system}/{python}/{lock}"

    @module(each=["a", "b"])
    def pack(ctx: SyncContext, item: str, lock: str = result_of(lockfile)) -> str:
        return f"{item}/{lock}"

    keyed = SimpleNamespace(matrix={"python": "3.12", "system": "linux"})

    assert spec_of(check).call(keyed, {"lock": "l"}, None) == "linux/3.12/l"
    assert spec_of(pack).call(ANY_CONTEXT, {"lock": "l"}, "a") == "a/l"
    with pytest.raises(DeclarationError, match="called item"):

        @module(each=["a"])
        def wrong(ctx: SyncContext, thing: str) -> None: ...


@clause("RUN-61")
def test_wrong_context_for_the_kind_of_body_is_refused() -> None:
    """A sync body would call coroutines and drop them; an async one would block the loop."""

    def sync_body(ctx: Context) -> int:
        return 1

    async def async_body(ctx: SyncContext) -> int:
        return 1

    declare: Any = module
    with pytest.raises(DeclarationError, match=r"sync_body .*SyncContext, not a Context"):
        declare(sync_body)
    with pytest.raises(DeclarationError, match=r"async_body .*Context, not a SyncContext"):
        declare(async_body)


@clause("MOD-15")
def test_function_module_is_a_plain_function_outside_a_run() -> None:
    """A unit test calls the body with the inputs that the engine would give."""
    assert build(ANY_CONTEXT, "abc", note=None) == 3
    assert build.__doc__ is None
    assert lockfile.__doc__ == "Restore the lock file."


@clause("MOD-15")
def test_calling_a_module_inside_a_running_body_is_refused() -> None:
    """It would run outside the plan: not waited for, not resumed, not seen."""
    token = current_attempt.set(Attempt(task_id="publish", module="publish", run_id="r", worker_id="w", workdir=Path()))
    try:
        with pytest.raises(UndeclaredDependencyError, match=r"publish .*result_of\(build\)"):
            build(ANY_CONTEXT, "abc", note=None)
    finally:
        current_attempt.reset(token)


@clause("MOD-15")
def test_marker_that_no_value_replaced_raises_when_touched() -> None:
    """A stand-in that behaves like a value would travel through a program unnoticed."""
    stand_in: Any = result_of(lockfile)

    for touch in (
        lambda: stand_in.path,
        lambda: stand_in(),
        lambda: stand_in[0],
        lambda: list(stand_in),
        lambda: bool(stand_in),
        lambda: stand_in + "x",
        lambda: Path(stand_in),
    ):
        with pytest.raises(UndeclaredDependencyError, match="lockfile"):
            touch()
    assert repr(stand_in) == "result_of(lockfile)"
    with pytest.raises(UndeclaredDependencyError, match="no value for lock"):
        build(ANY_CONTEXT)


def test_wrapped_body_keeps_its_parameters() -> None:
    """A decorator of the user's own between @module and the body hides neither context nor dependencies."""

    def shouting(body: Any) -> Any:
        @functools.wraps(body)
        def wrapper(*args: Any, **kwargs: Any) -> str:
            return str(body(*args, **kwargs)).upper()

        return wrapper

    @module
    @shouting
    def greet(ctx: SyncContext, lock: str = result_of(lockfile)) -> str:
        return lock

    spec = spec_of(greet)
    assert [edge.param for edge in spec.edges] == ["lock"]
    assert spec.call(ANY_CONTEXT, {"lock": "hi"}, None) == "HI"


@pytest.mark.parametrize("body", [functools.partial(build), str.upper, "text", type("Callable", (), {})])
def test_what_is_no_function_is_no_body(body: Any) -> None:
    """Only a function has parameters, annotations and source text to read."""
    with pytest.raises(DeclarationError, match="def"):
        module(body)


@clause("MOD-01")
def test_a_function_is_read_again_when_its_defaults_were_changed() -> None:
    """A loop that gives one function another dependency each time: the plan must have each, not the first of them."""

    async def step(ctx: Context, given: Any = None) -> None:
        return None

    step.__qualname__ = "step"  # as at the top of a file, where what was read last is remembered
    first = module(name="first")(step)
    step.__defaults__ = (result_of(lockfile),)
    second = module(name="second")(step)
    third = module(name="third")(step)

    assert spec_of(first).edges == ()
    assert [[edge.param for edge in spec_of(one).edges] for one in (second, third)] == [["given"], ["given"]]
