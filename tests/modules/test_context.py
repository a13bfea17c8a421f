"""The context hands every call to the doors of its node, with the attempt that it belongs to."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from towline import ArtifactRef, CommandResult, Context, DeclarationError, Finding, Step, SyncContext, module
from towline.modules.doors import Attempt
from towline.testing import clause

REFERENCE = ArtifactRef(task_id="build", name="wheel", digest="sha256:0", size_bytes=1, kind="file")


class Doors:
    """Doors that note what they were asked for, and open at once."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.steps: dict[str, Any] = {}
        self.loop = asyncio.new_event_loop()

    def log(self, attempt: Attempt) -> logging.Logger:
        return logging.getLogger(f"test.{attempt.task_id}")

    def progress(self, attempt: Attempt, done: int, total: int | None) -> None:
        self.asked.append(("progress", attempt.task_id, done, total))

    def finding(self, attempt: Attempt, finding: Finding) -> None:
        self.asked.append(("finding", attempt.task_id, finding))

    def secret(self, attempt: Attempt, name: str) -> Any:
        self.asked.append(("secret", attempt.task_id, name))

    def mask(self, attempt: Attempt, value: str) -> None:
        self.asked.append(("mask", attempt.task_id, value))

    async def run(self, attempt: Attempt, argv: tuple[Any, ...], options: Any) -> Any:
        self.asked.append(("run", attempt.task_id, argv, dict(options)))
        return CommandResult(argv=tuple(map(str, argv)), returncode=0, stdout="out", stderr="")

    async def run_step(self, attempt: Attempt, name: str, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        self.asked.append(("run_step", attempt.task_id, name))
        return fn(*args, **kwargs)

    @asynccontextmanager
    async def open_step(self, attempt: Attempt, name: str, result: Any) -> AsyncIterator[Step[Any]]:
        self.asked.append(("open_step", attempt.task_id, name, result))
        step: Step[Any] = Step(attempt.task_id, name, has_value=True)
        if name in self.steps:
            step.done = True
            step.set(self.steps[name])
        yield step
        self.steps[name] = step.value

    async def open_cursor(self, attempt: Attempt, options: Any) -> Any:
        self.asked.append(("open_cursor", attempt.task_id, options))
        return "cursor"

    def open_sync_cursor(self, attempt: Attempt, options: Any) -> Any:
        self.asked.append(("open_sync_cursor", attempt.task_id, options))
        return "sync cursor"

    async def put_artifact(self, attempt: Attempt, name: str, path: Any) -> ArtifactRef:
        self.asked.append(("put", attempt.task_id, name, path))
        return REFERENCE

    async def get_artifact(self, attempt: Attempt, reference: ArtifactRef, into: Any) -> Path:
        self.asked.append(("get", attempt.task_id, reference, into))
        return Path(into)

    def find_artifacts(self, attempt: Attempt, module: str, name: str) -> ArtifactRef:
        self.asked.append(("find", attempt.task_id, module, name))
        return REFERENCE

    def offload(self, attempt: Attempt) -> Any:
        return "offload"

    def blocking(self, attempt: Attempt, call: Callable[[], Any]) -> Any:
        async def waited() -> Any:
            return await call()

        return self.loop.run_until_complete(waited())


@pytest.fixture
def doors() -> Iterator[Doors]:
    """Doors with a loop of their own, on which sync bodies wait."""
    made = Doors()
    yield made
    made.loop.close()


@pytest.fixture
def attempt(tmp_path: Path) -> Attempt:
    return Attempt(
        task_id="build[3.12]",
        module="build",
        key="3.12",
        run_id="r-1",
        attempt=2,
        epoch=7,
        worker_id="w-1",
        workdir=tmp_path,
        matrix={"python": "3.12"},
        item="a",
        params=Path("params"),
    )


@module
async def build(ctx: Context) -> int:
    return 1


def test_facts_are_those_of_the_attempt(doors: Doors, attempt: Attempt, tmp_path: Path) -> None:
    """Both contexts and conditions read them by the same names."""
    for kind in (Context, SyncContext):
        ctx = kind(attempt, doors)
        assert (ctx.task_id, ctx.key, ctx.run_id, ctx.worker_id) == ("build[3.12]", "3.12", "r-1", "w-1")
        assert (ctx.attempt, ctx.epoch, ctx.workdir, ctx.item) == (2, 7, tmp_path, "a")
        assert ctx.matrix["python"] == "3.12"
        assert not ctx.cancelled
        attempt.cancelled = True
        assert ctx.cancelled
        attempt.cancelled = False


@clause("MOD-22")
def test_params_are_given_only_as_what_they_are(doors: Doors, attempt: Attempt) -> None:
    """A context does not know its pipeline, so the body says what it expects and is told when it is wrong."""
    ctx = Context(attempt, doors)

    assert ctx.params(Path) == Path("params")
    with pytest.raises(DeclarationError, match=r"build: ctx\.params=.*int.*PosixPath"):
        ctx.params(int)
    attempt.params = None
    with pytest.raises(DeclarationError, match="declares no params"):
        ctx.params(int)


def test_what_both_contexts_say_goes_through_the_doors(doors: Doors, attempt: Attempt) -> None:
    """One object serves every attempt of a node; the attempt says whose call it is."""
    for kind in (Context, SyncContext):
        ctx = kind(attempt, doors)
        ctx.progress(1, 2)
        ctx.finding("A", "text", severity="info", evidence={"n": "1"})
        ctx.secret("TOKEN")
        ctx.mask("value")
        assert ctx.log.name == "test.build[3.12]"
        assert ctx.artifacts.find(build, "wheel") is REFERENCE

    mine = "build[3.12]"
    assert doors.asked[:5] == [
        ("progress", mine, 1, 2),
        ("finding", mine, Finding(code="A", severity="info", message="text", evidence={"n": "1"})),
        ("secret", mine, "TOKEN"),
        ("mask", mine, "value"),
        ("find", mine, "build", "wheel"),
    ]
    assert doors.asked[5:] == doors.asked[:5]


@pytest.mark.anyio
async def test_async_context_awaits_its_doors(doors: Doors, attempt: Attempt) -> None:
    """Commands, steps, cursors and artifacts take time, and the loop goes on meanwhile."""
    ctx = Context(attempt, doors)

    assert (await ctx.run("git", "status", check=False)).stdout == "out"
    assert await ctx.step("count", len, "abc") == 3
    async with ctx.step("mail", result=str) as step:
        step.set("sent")
    async with ctx.step("mail", result=str) as step:
        assert step.done
        assert step.value == "sent"
    assert await ctx.cursor(key=str) == "cursor"  # type: ignore[comparison-overlap]
    assert await ctx.artifacts.put("wheel", "x") is REFERENCE
    assert await ctx.artifacts.get(REFERENCE, "into") == Path("into")
    assert ctx.offload == "offload"  # type: ignore[comparison-overlap]

    assert doors.asked[0] == ("run", "build[3.12]", ("git", "status"), {"encoding": "utf-8", "check": False})
    assert [one[0] for one in doors.asked[1:]] == ["run_step", "open_step", "open_step", "open_cursor", "put", "get"]
    assert doors.asked[4][2]["stages"] == ("done",)


@clause("RUN-61")
def test_sync_context_blocks_on_the_same_doors(doors: Doors, attempt: Attempt) -> None:
    """A sync body has the same names, without await."""
    ctx = SyncContext(attempt, doors)

    assert ctx.run("git", encoding=None).returncode == 0
    assert ctx.step("count", len, "abc") == 3
    assert ctx.step("count", len, "other") == 3
    with ctx.step("mail", result=str) as step:
        step.set("sent")
    assert ctx.cursor(key=str) == "sync cursor"  # type: ignore[comparison-overlap]
    assert ctx.artifacts.put("wheel", "x") is REFERENCE
    assert ctx.artifacts.get(REFERENCE, "into") == Path("into")

    assert [one[0] for one in doors.asked] == [
        "run",
        "open_step",
        "open_step",
        "open_step",
        "open_sync_cursor",
        "put",
        "get",
    ]


@clause("RUN-61")
def test_step_of_a_sync_body_that_fails_is_not_remembered(doors: Doors, attempt: Attempt) -> None:
    """The next attempt has to do it."""
    ctx = SyncContext(attempt, doors)

    with pytest.raises(ZeroDivisionError), ctx.step("bad"):
        1 / 0  # noqa: B018

    assert doors.steps == {}


def test_context_holds_nothing_but_attempt_and_doors(attempt: Attempt, doors: Doors) -> None:
    """One is made per attempt, on the hot path; a dict for each would be most of its cost."""
    assert not hasattr(Context(attempt, doors), "__dict__")
    assert not hasattr(SyncContext(attempt, doors), "__dict__")
