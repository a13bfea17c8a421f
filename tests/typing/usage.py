"""Programs as users would write them; the type checkers must accept every line."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never, assert_type

from towline import (
    Cache,
    Cancelled,
    Context,
    Cursor,
    ExecutionRequest,
    ExpandedModule,
    Failed,
    IdMap,
    Module,
    Observer,
    Options,
    Outcome,
    Pipeline,
    PipelineFailedError,
    Pool,
    Query,
    Retry,
    RunReport,
    Settings,
    Skip,
    Skipped,
    SqlCursor,
    Succeeded,
    SyncContext,
    TimedOut,
    any_of,
    cap,
    changed,
    command_exists,
    env,
    maybe_result_of,
    module,
    on_platform,
    outcome_of,
    param,
    result_of,
    tagged,
)

# ------------------------------------------------------------------ hello


@module
async def greeting(ctx: Context) -> str:
    return "hello"


@module
def shout(ctx: SyncContext, text: str = result_of(greeting)) -> str:
    ctx.log.info("shouting")
    return text.upper()


hello = Pipeline("hello", [shout])

# ------------------------------------------------------------------ release


@dataclass(frozen=True)
class Release:
    channel: str = "nightly"
    publish: bool = False


@dataclass(frozen=True)
class Lockfile:
    path: Path


@dataclass(frozen=True)
class Wheel:
    path: Path


@dataclass(frozen=True)
class Report:
    python: str
    failed: int


@module(cache=Cache(inputs=["uv.lock"], env=["UV_INDEX"]), requires="linux")
async def restore(ctx: Context) -> Lockfile:
    await ctx.run("uv", "sync", "--frozen")
    return Lockfile(Path("uv.lock"))


@module(
    timeout=600,
    retries=Retry(2, on=(ConnectionError, TimeoutError), base_s=1),
    requires=cap("docker") & (cap("linux") | cap("macos")),
    produces={"wheel": "dist/*.whl"},
    locks={"dist"},
    tags={"release"},
)
async def build(ctx: Context, lockfile: Lockfile = result_of(restore)) -> Wheel:
    version = await ctx.run("git", "describe", cwd=lockfile.path.parent, timeout=5)
    assert_type(version.stdout, str)
    raw = await ctx.run("cat", lockfile.path, encoding=None)
    assert_type(raw.stdout, bytes)
    return Wheel(Path("dist"))


@module(
    matrix={"python": ["3.11", "3.12", "3.13"]},
    consumes=[build.artifact("wheel", into="upload")],
    produces={"log": "pytest.log"},
    pools={"cpu": 2},
    skip_if=changed("docs/**"),
)
async def check(ctx: Context, python: str, wheel: Wheel = result_of(build)) -> Report:
    done = await ctx.run("pytest", "--python", python, wheel.path, check=False)
    return Report(python, done.returncode)


@module(matrix={"python": ["3.11", "3.12"]}, requires=any_of("linux", "macos"))
def smoke(ctx: SyncContext, python: str, tested: Report = result_of(check, same_key=True)) -> bool:
    return tested.failed == 0 and ctx.run("python", "-c", "").returncode == 0


@module(
    isolation="process",
    hint="cpu",
    ignore_failure=lambda error: isinstance(error, OSError),
    consumes=[check.artifact("log", into="logs")],
)
def summarise(ctx: SyncContext, reports: list[Report] = result_of(check)) -> int:
    return sum(report.failed for report in reports)


class Deploy(Module[str], after=[summarise, smoke], produces={"log": "deploy.log"}):
    """`Deploy("eu")` and `Deploy("us")` are two modules."""

    region: str
    replicas: int = 2
    wheel: Wheel = result_of(build)

    async def run(self, ctx: Context) -> str:
        if ctx.params(Release).channel == "none":
            raise Skip("nothing to deploy")
        await ctx.run("deploy", self.region, str(self.replicas), self.wheel.path)
        return f"https://{self.region}.example.org"

    async def before(self, ctx: Context) -> None:
        ctx.mask(ctx.secret("DEPLOY_TOKEN").reveal())


class Country(ExpandedModule[int], matrix={"part": [1, 2]}):
    """Instance parameters and a matrix together."""

    code: str

    def run(self, ctx: SyncContext) -> int:
        part: int = ctx.matrix["part"]
        return part + len(self.code)


eu = Deploy("eu")
us = Deploy("us", replicas=6, name="deploy-america")
spain = Country("es")


class Publish(
    Module[None],
    after=[eu, us, tagged("release")],
    consumes=[build.artifact("wheel", into="upload"), eu.artifact("log")],
    run_if=[env("CI"), on_platform("linux"), param("publish"), lambda task: task.attempt == 1],
    priority="high",
    at_most_once=True,
):
    wheel: Wheel = result_of(build)
    where: str = result_of(eu)
    counts: list[int] = result_of(spain)
    smoke_ok: bool | None = maybe_result_of(smoke, same_key=True)
    notes: str | None = maybe_result_of(shout)
    summaries: list[int] = result_of(tagged("summary", result=int))

    async def run(self, ctx: Context) -> None:
        assert_type(self.counts, list[int])
        assert_type(self.notes, str | None)
        await ctx.artifacts.get(ctx.artifacts.find(build, "wheel"), "again")
        for log in ctx.artifacts.find(check, "log"):
            await ctx.artifacts.get(log, f"logs/{log.task_id}")

    async def after(self, ctx: Context, outcome: Outcome[None]) -> None:
        ctx.log.info("%s", outcome)


@module(always_run=True)
async def notify(
    ctx: Context,
    published: Outcome[None] = outcome_of(Publish),
    checks: list[Outcome[Report]] = outcome_of(check),
) -> str:
    for one in checks:
        if isinstance(one, Succeeded):
            assert_type(one.value, Report)
    return in_words(published)


def in_words(outcome: Outcome[None]) -> str:
    match outcome:
        case Succeeded(value, origin="cached"):
            assert_type(value, None)
            return "was published before"
        case Succeeded():
            return "published"
        case Failed(error) | TimedOut(error):
            return error.text
        case Skipped(reason=reason):
            return reason.text if reason else "skipped"
        case Cancelled():
            return "cancelled"
        case _:
            assert_never(outcome)


release = Pipeline(
    "release",
    [Publish, notify],
    params=Release,
    options=Options(
        keep_going=True,
        pools={"cpu": 2, "db": Pool(1, scope="run")},
        require=[env("CI"), command_exists("uv", "git")],
    ),
)

# ------------------------------------------------------------------ fan-out that is known late


@module
async def list_files(ctx: Context) -> list[Path]:
    return sorted(ctx.workdir.glob("*.csv"))


@module(each=result_of(list_files), hint="cpu")
def pack(ctx: SyncContext, item: Path, lockfile: Lockfile = result_of(restore)) -> int:
    return item.stat().st_size


class Verify(ExpandedModule[bool], each=result_of(list_files)):
    size: int = result_of(pack, same_key=True)

    async def run(self, ctx: Context) -> bool:
        item: Path = ctx.item
        return item.stat().st_size == self.size


@module
def total(ctx: SyncContext, sizes: list[int] = result_of(pack)) -> int:
    return sum(sizes)


# ------------------------------------------------------------------ what modules share

patient: Settings = {"timeout": 3600, "retries": 5, "tags": {"network"}}


@module(**patient)
async def capture(ctx: Context) -> int:
    return 3


class Import(Module[int]):
    """No `run`: a base for modules, not a module. Its fields come first."""

    table: str


class ImportPlanes(Import, **patient):
    batch: int = 500
    captured: int = result_of(capture)

    async def run(self, ctx: Context) -> int:
        await ctx.run("load", self.table, str(self.batch))
        return self.captured


planes = ImportPlanes("planes", batch=100)

# ------------------------------------------------------------------ migration


@dataclass(frozen=True)
class Flight:
    key: str
    tail: str | None


def flight_key(flight: Flight) -> str:
    return flight.key


async def read_flights(after: str | None) -> AsyncIterator[Flight]:
    yield Flight("2013-01-01/a", None)


@dataclass(frozen=True)
class Receipt:
    id: int


async def open_ticket(title: str, *, urgent: bool = False) -> Receipt:
    return Receipt(1)


def count_rows(path: Path) -> int:
    return 2


@module(phase="prepare", gate=True)
async def judge(ctx: Context) -> None:
    ctx.finding("AIRPORT_AMBIGUOUS", "38 codes", severity="blocking", evidence={"code": "ABC"})


@module(phase="import", after=[judge], retries=3)
async def flights(ctx: Context) -> int:
    rows = await ctx.step("count", count_rows, Path("legacy.sqlite"))
    assert_type(rows, int)
    ticket = await ctx.step("ticket", open_ticket, "go", urgent=True)
    assert_type(ticket, Receipt)
    async with ctx.step("mail", result=Receipt) as step:
        if not step.done:
            step.set(await open_ticket("mail"))
        assert_type(step.value, Receipt)
    async with ctx.step("notify") as told:
        if not told.done:
            ctx.log.info("told")

    cursor = await ctx.cursor(key=flight_key, total=rows, query=Query("select", {"origin": "EWR"}))
    assert_type(cursor, Cursor[Flight, str])
    async for batch in cursor.batches(read_flights(cursor.position), size=500):
        for flight in batch:
            assert_type(flight, Flight)
        await cursor.commit(batch)
        ctx.progress(len(batch), rows)
    return rows


@module(phase="import", after=[planes])
async def weather(ctx: Context) -> None:
    cursor: Cursor[Flight, str] = await ctx.cursor(key=lambda flight: flight.key)
    async for batch in cursor.batches([Flight("a", None)]):
        await cursor.commit(batch)


@module(phase="import", isolation="process")
def airports(ctx: SyncContext) -> None:
    ids = IdMap("ids.sqlite")
    with sqlite3.connect("target.sqlite") as target:
        cursor = ctx.cursor(
            key=flight_key, stages=("row", "sheet", "done"), store=SqlCursor(target)
        )
        for flight in cursor.items([Flight("a", "N1"), Flight("b", None)]):
            if flight.tail is None:
                cursor.skip(flight, "TAIL_MISSING", "no tail number")
                continue
            if cursor.needs(flight, "row"):
                ids.put(flight.key, flight.tail)
                cursor.stage(flight, "row")
            cursor.commit(flight)


move = Pipeline(
    "move", [flights, weather, airports], phases=("export", "prepare", "import"), resume="auto"
)

# ------------------------------------------------------------------ distributed, and the seam

fleet = Pipeline(
    "fleet",
    [total, Verify],
    options=Options(
        coordinator="redis://localhost/0", state="s3://bucket/runs", worker_timeout_s=20
    ),
)


class OneByOne:
    """A back end that runs the plan in order, in this process."""

    owns_entire_plan = True

    async def execute(self, request: ExecutionRequest) -> Sequence[Outcome[object]]:
        return [await request.context.execute_task(task) for task in request.tasks]


class Beeper(Observer):
    async def run_finished(self, report: RunReport) -> None:
        print(report.status)


async def from_code() -> Wheel | None:
    pipeline = Pipeline("nightly", [build], options=Options(backend=OneByOne()))
    pipeline.listen(Beeper())
    print((await pipeline.plan()).to_text("mermaid"))
    try:
        report = await pipeline.run()
    except PipelineFailedError as error:
        print(error.report.exit_code)
        return None
    match report.outcome_of(build):
        case Succeeded(wheel):
            assert_type(wheel, Wheel)
            return wheel
        case _:
            return None


if __name__ == "__main__":
    release.main()
