"""Mistakes. The type checkers must refuse each line marked as refused, and no other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import assert_never

from towline import (
    Context,
    Cursor,
    ExpandedModule,
    Module,
    Options,
    Outcome,
    Pipeline,
    Retry,
    Selector,
    Settings,
    Succeeded,
    SyncContext,
    cap,
    env,
    maybe_result_of,
    module,
    outcome_of,
    result_of,
    tagged,
)
from usage import (
    Deploy,
    Flight,
    Lockfile,
    OneByOne,
    Publish,
    Release,
    Report,
    Verify,
    Wheel,
    build,
    check,
    flight_key,
    judge,
    list_files,
    release,
    restore,
    shout,
    summarise,
)

# ------------------------------------------------------------------ settings


def body(ctx: SyncContext) -> int:
    return 1


module(timout=3)  # refused: misspelt keyword
module(timeout="5m")  # refused: wrong type
module(hint="gpu")  # refused: not one of the values
module(isolation="fork")  # refused: not one of the values
module(priority="urgent")  # refused: not one of the values
module(locks="db")  # refused: a set of names, not a string
module(tags=["db"])  # refused: a set
module(matrix={"python": "3.11"})  # refused: an axis is a list of values
module(matrix={"a": [1]}, each=[1])  # refused: matrix with each
module(each=3)  # refused: not a list, tuple or mapping
module(after=[body])  # refused: a plain function is no module
module(after=[Deploy])  # refused: which Deploy? it has a parameter
module(after=build)  # refused: a list
module(retries=Retry(2, on=ValueError("x")))  # refused: a type, not an error
module(retries=Retry(2, base=1))  # refused: misspelt keyword
module(run_if=lambda task: "yes")  # refused: a condition is true or false
module(run_if="CI")  # refused: a condition, not a name
module(ignore_failure=lambda error: error.code == 3)  # refused: Exception has no code
module(consumes=["wheel"])  # refused: build.artifact("wheel")
module(requires=cap("docker") and 3)  # refused: combined with & and |
module(env("CI"))  # refused: settings are keywords
broken: Settings = {"timeouts": 3}  # refused: misspelt key


class Misspelt(Module[None], timout=3):  # refused: misspelt keyword
    async def run(self, ctx: Context) -> None: ...


class WrongBase(Module[None], matrix={"a": [1]}):  # refused: ExpandedModule has a matrix
    async def run(self, ctx: Context) -> None: ...


class Both(ExpandedModule[None], matrix={"a": [1]}, each=[1]):  # refused: matrix with each
    async def run(self, ctx: Context) -> None: ...


class Neither(ExpandedModule[None]):  # refused: matrix or each
    async def run(self, ctx: Context) -> None: ...


# ------------------------------------------------------------------ bodies


@module  # refused: a sync body gets a SyncContext
def sync_with_context(ctx: Context) -> int:
    return 1


@module  # refused: the context comes first
async def no_context() -> int:
    return 1


@module  # refused: the context comes first
async def context_last(wheel: Wheel, ctx: Context) -> int:
    return 1


@module  # refused: a body returns its value, it does not yield
async def generator(ctx: Context) -> AsyncIterator[int]:
    yield 1


@module(each=result_of(list_files))  # refused: the items are paths
async def wrong_item(ctx: Context, item: str) -> int:
    return 1


@module(each=result_of(list_files))  # refused: no item
async def no_item(ctx: Context) -> int:
    return 1


class WrongResult(Module[str]):
    async def run(self, ctx: Context) -> int:  # refused: promised a str
        return 1


class WrongHook(Module[str]):
    async def run(self, ctx: Context) -> str:
        return ""

    async def after(self, ctx: Context, outcome: Outcome[int]) -> None: ...  # refused: of str


class Writes(Module[None]):
    wheel: Wheel = result_of(build)
    region: str = "eu"

    async def run(self, ctx: Context) -> None:
        self.region = "us"  # refused: instances are frozen
        self.wheel = Wheel(Path())  # refused: instances are frozen


# ------------------------------------------------------------------ dependencies


class Dependencies(Module[None]):
    a: Lockfile = result_of(build)  # refused: build gives a Wheel
    b: Wheel = maybe_result_of(build)  # refused: may be None
    c: Wheel = outcome_of(build)  # refused: an outcome
    d: Report = result_of(check)  # refused: check has a matrix: a list
    e: list[Report] = maybe_result_of(check)  # refused: None for failed keys
    f: list[Report] = result_of(check, same_key=True)  # refused: one of them
    g: Wheel = result_of(build, same_key=True)  # refused: build has one task
    h: Report = result_of(check, samekey=True)  # refused: misspelt keyword
    i: str = result_of(Deploy)  # refused: which Deploy? it has a parameter
    j: int = result_of(body)  # refused: a plain function is no module
    k: list[int] = result_of(tagged("n"))  # refused: say tagged("n", result=int)
    o: list[str] = result_of(tagged("n", result=int))  # refused: ints
    m: bool = result_of(Verify)  # refused: Verify has an each: a list
    n: Wheel = result_of("build")  # refused: a module, not its name

    async def run(self, ctx: Context) -> None: ...


@module
async def wrong_default(ctx: Context, wheel: Lockfile = result_of(build)) -> None:  # refused: Wheel
    return None


Deploy()  # refused: region is missing
Deploy(3)  # refused: region is a str
Deploy("eu", wheel=Wheel(Path()))  # refused: a dependency is no parameter
Deploy("eu", timeout=3)  # refused: a setting of the class
build.artifact("wheel", to="x")  # refused: misspelt keyword
build.artifact("wheel", same_key=True)  # refused: build has one task
Selector[int]().name  # refused: a selector has no name

# ------------------------------------------------------------------ in a body


async def in_a_body(ctx: Context) -> None:
    await ctx.run()  # refused: no program
    await ctx.run("ls", 3)  # refused: text or a path
    await ctx.run("ls", shell=True)  # refused: there is no shell
    (await ctx.run("ls", encoding=None)).stdout.encode()  # refused: bytes
    await ctx.step("count", flight_key)  # refused: its argument is missing
    await ctx.step("count", flight_key, 3)  # refused: its argument is a Flight
    ctx.finding("A", "b", severity="fatal")  # refused: not one of the values
    ctx.finding("A", "b", evidence={"n": 3})  # refused: evidence is text
    ctx.params(Release).chanel  # refused: misspelt field
    ctx.attempt.foo  # refused: an int
    ctx.sleep(3)  # refused: no such thing
    await ctx.cursor(key=Path.stat)  # refused: a stat result is no key
    cursor = await ctx.cursor(key=flight_key)
    cursor.commit(3)  # refused: 3 is no Flight
    await cursor.commit(Path())  # refused: no Flight
    async for _ in cursor.batches(["a"]):  # refused: no flights
        pass
    wrong: Cursor[Flight, int] = cursor  # refused: keys are text
    async with ctx.step("x", result=int) as step:
        step.set("3")  # refused: an int
    with ctx.step("y"):  # refused: async with
        pass


def in_a_sync_body(ctx: SyncContext) -> None:
    ctx.run("ls").stdout.decode()  # refused: already text
    ctx.offload  # refused: async bodies only
    for _ in ctx.cursor(key=flight_key).batches([3]):  # refused: no flights
        pass


def incomplete(outcome: Outcome[int]) -> int:
    match outcome:
        case Succeeded(value):
            return value
        case _:
            assert_never(outcome)  # refused: four cases are left


def too_trusting(outcome: Outcome[int]) -> int:
    return outcome.value  # refused: only Succeeded has one


# ------------------------------------------------------------------ pipelines


Pipeline("a", [body])  # refused: a plain function is no module
Pipeline("a", [Deploy])  # refused: which Deploy?
Pipeline("a", [tagged("x")])  # refused: a selector adds no module
Pipeline("a", [build], resume="always")  # refused: not one of the values
Pipeline("a", [build], option=Options())  # refused: misspelt keyword
Options(paralelism=3)  # refused: misspelt keyword
Options(durability="disk")  # refused: not one of the values
Options(backend=OneByOne)  # refused: an instance, not its class
release.run_sync(Lockfile(Path()))  # refused: its parameters are a Release
result: int = release.run_sync()  # refused: a report
