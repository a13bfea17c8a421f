"""Every setting is checked where it is written."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline import (
    Cache,
    Context,
    DeclarationError,
    Module,
    Pool,
    Retry,
    SyncContext,
    any_of,
    cap,
    env,
    maybe_result_of,
    module,
    outcome_of,
    result_of,
)
from towline.identity import MODULE_NAME
from towline.modules import spec_of
from towline.modules.spec import ModuleSettings
from towline.testing import clause


def settings_of(**given: Any) -> ModuleSettings:
    """Declare a module with these settings, and give what came of them."""

    @module(**given)
    async def build(ctx: Context) -> int:
        return 1

    return spec_of(build).settings


@module(produces={"wheel": "dist/*.whl"})
async def wheel(ctx: Context) -> int:
    return 1


def never(error: Exception) -> bool:
    return False


ACCEPTED: list[tuple[dict[str, Any], str, Any]] = [
    ({"timeout": 5}, "timeout_s", 5.0),
    ({"timeout": timedelta(minutes=2)}, "timeout_s", 120.0),
    ({"timeout": 0}, "timeout_s", 0.0),
    ({"retries": 2}, "retries", Retry(2)),
    ({"retries": Retry(2, base_s=1)}, "retries", Retry(2, base_s=1)),
    ({"ignore_failure": never}, "ignore_failure", never),
    ({"always_run": True}, "always_run", True),
    ({"run_if": env("CI")}, "run_if", (env("CI"),)),
    ({"skip_if": [env("CI"), env("X", "1")]}, "skip_if", (env("CI"), env("X", "1"))),
    ({"priority": "low"}, "priority", -100),
    ({"priority": -999}, "priority", -999),
    ({"requires": "Linux"}, "requires", (("linux",),)),
    ({"requires": ["linux", "docker"]}, "requires", (("docker",), ("linux",))),
    ({"requires": cap("a") & any_of("b", "c")}, "requires", (("a",), ("b", "c"))),
    ({"locks": {"db"}}, "locks", frozenset({"db"})),
    ({"exclusive": True}, "exclusive", True),
    ({"pools": "db"}, "pools", {"db": 1}),
    ({"pools": {"db": 2}}, "pools", {"db": 2}),
    ({"hint": "io"}, "hint", "io"),
    ({"isolation": "process"}, "isolation", "process"),
    ({"produces": {"log": "a/**/b.txt"}}, "produces", {"log": "a/**/b.txt"}),
    ({"tags": {"DB", "slow"}}, "tags", frozenset({"db", "slow"})),
    ({"category": "build"}, "category", "build"),
    ({"phase": "export"}, "phase", "export"),
    ({"gate": True}, "gate", True),
    ({"version": "7"}, "version", "7"),
    ({"at_most_once": True}, "at_most_once", True),
    ({"at_most_once": True, "retries": 0}, "retries", Retry(0)),
]


@clause("MOD-08")
@pytest.mark.parametrize(("given", "field", "value"), ACCEPTED)
def test_setting_has_one_spelling_after_checking(given: dict[str, Any], field: str, value: Any) -> None:
    """Whatever way a setting was written, the engine reads one."""
    assert getattr(settings_of(**given), field) == value


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"timeout": "5m"}, "timedelta"),
    ({"timeout": -1}, "0 or more"),
    ({"timeout": float("nan")}, "seconds"),
    ({"timeout": True}, "seconds"),
    ({"timeout": None}, "0 for no limit"),
    ({"retries": 101}, "0 to 100"),
    ({"retries": -1}, "0 to 100"),
    ({"retries": True}, "whole number"),
    ({"retries": 1.5}, "whole number"),
    ({"ignore_failure": ValueError}, "function"),
    ({"ignore_failure": "yes"}, "True, False"),
    ({"always_run": 1}, "True or False"),
    ({"run_if": "CI"}, "env"),
    ({"skip_if": [env("CI"), 3]}, "condition"),
    ({"priority": "urgent"}, "'critical'"),
    ({"priority": "hihg"}, r"Did you mean 'high'\?"),
    ({"priority": 1000}, "999"),
    ({"priority": True}, "whole number"),
    ({"requires": "li nux"}, "letter or digit"),
    ({"requires": 3}, "capability"),
    ({"requires": [cap("a")]}, "combine"),
    ({"locks": "db"}, "a set"),
    ({"locks": {3}}, "a set"),
    ({"tags": ["db"]}, "a set"),
    ({"exclusive": "yes"}, "True or False"),
    ({"pools": {"db": 0}}, "from 1"),
    ({"pools": 3}, "name of a pool"),
    ({"hint": "gpu"}, "'cpu' or 'io'"),
    ({"isolation": "fork"}, "'process'"),
    ({"produces": "dist/*"}, "pattern"),
    ({"produces": {"Wheel": "dist/*"}}, "artifact name"),
    ({"produces": {"wheel": "/dist"}}, "absolute"),
    ({"produces": {"wheel": "../dist"}}, r"\.\."),
    ({"produces": {"wheel": "dist\\x"}}, "/"),
    ({"consumes": ["wheel"]}, "artifact"),
    ({"cache": "yes"}, "Cache"),
    ({"category": ""}, "not empty"),
    ({"phase": 3}, "text"),
    ({"gate": 0}, "True or False"),
    ({"version": 3}, "text"),
    ({"after": wheel}, "a list"),
    ({"after": [never]}, "@module"),
    ({"after": ["wheel"]}, "selector"),
    ({"name": ""}, "name="),
    ({"matrix": {"python": "3.11"}}, "list or tuple"),
    ({"matrix": {"python": []}}, "at least one"),
    ({"matrix": {"python": [1, "1"]}}, "differ"),
    ({"matrix": {"3x": [1]}}, "identifier"),
    ({"matrix": {}}, "axes"),
    ({"each": 3}, "list, tuple or dict"),
    ({"each": "abc"}, "list, tuple or dict"),
    ({"each": maybe_result_of(wheel)}, "result_of"),
]


@clause("MOD-08")
@pytest.mark.parametrize(("given", "allowed"), REFUSED)
def test_wrong_value_is_refused_with_module_setting_value_and_what_is_allowed(
    given: dict[str, Any], allowed: str
) -> None:
    """The text alone has to be enough to correct the line."""
    with pytest.raises(DeclarationError, match=allowed) as refused:
        settings_of(**given)

    assert given.get("name", "build") in str(refused.value)
    assert next(iter(given)) in str(refused.value)
    assert refused.value.exit_code == 2


@clause("MOD-08")
def test_unknown_keyword_suggests_the_nearest() -> None:
    """A misspelt setting would otherwise be a setting that is silently not there."""
    with pytest.raises(DeclarationError, match=r"build .*timout.*Did you mean 'timeout'\?"):
        settings_of(timout=3)
    with pytest.raises(DeclarationError, match=r"Publish .*prority.*Did you mean 'priority'\?"):

        class Publish(Module[None], prority=3):  # type: ignore[call-arg]
            async def run(self, ctx: Context) -> None: ...


@clause("MOD-08")
def test_error_names_the_line_that_declares_the_module() -> None:
    """With hundreds of modules the name alone does not find the file."""
    with pytest.raises(DeclarationError) as refused:
        settings_of(timeout="x")

    assert f"{Path(__file__)}:" in str(refused.value)


@clause("MOD-01")
def test_settings_mean_the_same_for_function_and_class() -> None:
    """A function that grows into a class keeps its keywords."""
    shared: Any = {"timeout": 5, "retries": 1, "tags": {"x"}, "requires": "linux", "produces": {"log": "x.log"}}

    @module(**shared)
    async def build(ctx: Context) -> int:
        return 1

    class Build(Module[int], **shared):
        async def run(self, ctx: Context) -> int:
            return 1

    assert spec_of(build).settings == spec_of(Build).settings


TOGETHER: list[tuple[dict[str, Any], str]] = [
    ({"at_most_once": True, "retries": 1}, "retries"),
    ({"at_most_once": True, "cache": True}, "cache"),
    ({"always_run": True, "gate": True}, "gate"),
    ({"matrix": {"a": [1]}, "each": [1]}, "each"),
    ({"isolation": "thread"}, "async"),
]


@clause("MOD-09")
@pytest.mark.parametrize(("given", "other"), TOGETHER)
def test_contradiction_is_refused(given: dict[str, Any], other: str) -> None:
    """Two wishes that exclude each other: whichever the engine took, the user would be surprised."""
    with pytest.raises(DeclarationError, match=other):
        settings_of(**given)


@clause("MOD-09")
def test_module_that_always_runs_takes_no_plain_result() -> None:
    """It also runs when its dependency failed and there is no result to give."""
    with pytest.raises(DeclarationError, match=r"always_run.*outcome_of"):

        @module(always_run=True)
        async def notify(ctx: Context, built: int = result_of(wheel)) -> None: ...

    @module(always_run=True, after=[wheel])
    async def tidy(ctx: Context, built: int | None = maybe_result_of(wheel), how: Any = outcome_of(wheel)) -> None: ...

    assert [edge.use for edge in spec_of(tidy).edges] == ["optional", "outcome", "order"]


@clause("MOD-04")
@given(st.text(max_size=130))
def test_names_are_those_of_the_rule_and_no_other(name: str) -> None:
    """Names stand in files, URLs, logs and shells; what is allowed there is decided once."""
    if MODULE_NAME.match(name):
        assert settings_of(name=name) == ModuleSettings()
    else:
        with pytest.raises(DeclarationError, match="name"):
            settings_of(name=name)


@clause("MOD-04")
def test_lambda_needs_a_name() -> None:
    """``<lambda>`` is no name that a person could select."""
    with pytest.raises(DeclarationError, match="name="):
        module(lambda ctx: 1)

    def make() -> Any:
        return module(name="one")(lambda ctx: 1)

    assert make().name == "one"


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Retry(-1), "count"),
        (lambda: Retry(2, base_s=-1), "base_s"),
        (lambda: Retry(2, factor=0.5), "factor"),
        (lambda: Retry(2, max_s=float("inf")), "max_s"),
        (lambda: Retry(2, on=ValueError("x")), "on"),  # type: ignore[arg-type]
        (lambda: Retry(2, on=KeyboardInterrupt), "on"),  # type: ignore[arg-type]
        (lambda: Retry(2, on=()), "on"),
        (lambda: Cache(inputs="uv.lock"), "inputs"),
        (lambda: Cache(env=[""]), "env"),
        (lambda: Cache(key="x"), "key"),
        (lambda: Cache(version=""), "version"),
        (lambda: Pool(0), "tickets"),
        (lambda: Pool(1, scope="rack"), "scope"),  # type: ignore[arg-type]
    ],
)
def test_records_check_their_values_when_they_are_made(make: Any, field: str) -> None:
    """An option that is wrong is wrong where it is written, not where it is used."""
    with pytest.raises(DeclarationError, match=field):
        make()


@clause("ART-01")
def test_requests_are_checked_against_what_the_producer_declares() -> None:
    """A misspelt artifact would be found missing when the producer has already run for an hour."""
    with pytest.raises(DeclarationError, match=r"'whel'.*produces wheel.*Did you mean 'wheel'\?"):
        settings_of(consumes=[wheel.artifact("whel")])
    with pytest.raises(DeclarationError, match="twice"):
        settings_of(consumes=[wheel.artifact("wheel"), wheel.artifact("wheel", into="x")])
    with pytest.raises(DeclarationError, match=r"\.\."):
        settings_of(consumes=[wheel.artifact("wheel", into="../x")])

    [use] = settings_of(consumes=[wheel.artifact("wheel", into="upload")]).consumes
    assert (use.module.name, use.artifact, use.into) == ("wheel", "wheel", "upload")


def test_async_condition_is_refused() -> None:
    """A coroutine is always true; what must wait belongs in the body."""

    async def ready(task: Any) -> bool:
        return False

    with pytest.raises(DeclarationError, match="Skip"):
        settings_of(run_if=ready)


def test_sync_body_may_ask_for_a_thread() -> None:
    """``"thread"`` is what a sync body gets anyway; saying so is no error."""

    @module(isolation="thread")
    def build(ctx: SyncContext) -> int:
        return 1

    assert spec_of(build).settings.isolation == "thread"
