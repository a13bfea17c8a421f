"""The cache as the runner uses it: what hits, what misses, what is never kept."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from planning.declared import edge, planned, spec, takes
from towline.artifacts.collecting import collect
from towline.artifacts.directory import DirectoryArtifactStore
from towline.artifacts.records import ArtifactRef
from towline.execution.cache import DirectoryCacheStore
from towline.execution.cached import CachedRuns
from towline.modules.doors import Attempt
from towline.modules.outcomes import Finding, Outcome, Reason, Skipped, Succeeded
from towline.modules.spec import CacheRule
from towline.planning.built import BuiltPlan
from towline.planning.records import PlannedTask
from towline.testing import TestClock, clause

pytestmark = pytest.mark.anyio


class Task(msgspec.Struct):
    position: int
    row: PlannedTask
    attempt: Attempt


class World:
    """One machine with a cache, on which runs of slightly different programs follow one another."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.workdir = folder, folder / "work"
        self.workdir.mkdir(parents=True)
        self.store = DirectoryCacheStore(folder / "cache")
        self.artifacts = DirectoryArtifactStore(folder / "artifacts")
        self.outcomes: dict[str, Outcome[Any]] = {}
        self.said: list[tuple[str, str]] = []
        self.version: str | None = "1"
        self.rule: dict[str, Any] = {}
        self.more: dict[str, Any] = {}
        self.params: dict[str, Any] = {}
        self.upstream: Outcome[Any] = Succeeded([1, 2], task_id="fetch")
        self.root: Path | None = self.workdir

    def plan(self) -> BuiltPlan:
        fetch = spec("fetch", result=list[int], produces={"data": "data/*"})
        first = spec("first")
        edges = [edge(fetch), edge(first, "order")]
        cache = CacheRule(version=self.version, **self.rule)
        settings = {"cache": cache, "consumes": (takes(fetch, "data"),), "produces": {"out": "out/*"}} | self.more
        build = spec("build", *edges, result=dict[str, int], **settings)
        return planned(build, params=self.params)

    def runs(self) -> tuple[CachedRuns, Task]:
        """The cache of a new run, and its task ``build``."""
        self.built = self.plan()
        attempt = Attempt(task_id="build", module="build", run_id="r", worker_id="w", workdir=self.workdir)
        position = self.built.index["build"]
        self.built.tasks[self.built.index["first"]].state = "succeeded"
        runs = CachedRuns(
            store=self.store,
            artifacts=self.artifacts,
            built=self.built,
            outcomes=self,
            root=self.root,
            log=lambda attempt, level, text: self.said.append((level, text)),
            clock=TestClock(),
        )
        return runs, Task(position, self.built.tasks[position], attempt)

    def outcome(self, position: int) -> Outcome[Any]:
        return self.upstream

    def task(self, position: int) -> PlannedTask:
        return self.built.tasks[position]

    def joined(self, position: int) -> int:
        return position

    def tasks_of(self, module: str) -> tuple[int, ...]:
        return self.built.tasks_of[module]

    def artifacts_of(self, position: int) -> tuple[ArtifactRef, ...]:
        return self.upstream.artifacts

    async def run(self, value: dict[str, int] | None = None, during: Callable[[], None] = lambda: None) -> str:
        """Run the task once; says whether its body ran or the cache answered."""
        runs, task = self.runs()
        found = await runs.look_up(task)
        if found is not None:
            self.found = found
            return "cached"
        (self.workdir / "out").mkdir(exist_ok=True)
        (self.workdir / "out/file").write_text("made")
        during()
        reference = await collect(self.artifacts, "build", "out", "out/*", self.workdir)
        assert reference is not None
        findings = (Finding(code="c", severity="info", message="m"),)
        outcome = Succeeded(value or {"a": 1}, task_id="build", artifacts=(reference,), findings=findings)
        await runs.save(task, outcome)
        return "ran"

    def warnings(self) -> str:
        return "\n".join(text for level, text in self.said if level == "warning")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@clause("CACHE-01", "CACHE-05")
async def test_a_hit_gives_value_artifacts_and_findings(world: World) -> None:
    """Whoever depends on a cached task sees no difference to one that ran."""
    assert await world.run({"a": 5}) == "ran"
    (world.workdir / "out/file").unlink()
    world.artifacts = DirectoryArtifactStore(world.folder / "new-run")

    assert await world.run() == "cached"

    assert (world.found.value, world.found.origin) == ({"a": 5}, "cached")
    assert world.found.reason == Reason(code="cached")
    assert [finding.code for finding in world.found.findings] == ["c"]
    assert (world.workdir / "out/file").read_text() == "made"
    assert await world.artifacts.exists(world.found.artifacts[0].digest)


CHANGES: dict[str, Callable[[World], object]] = {
    "version": lambda world: setattr(world, "version", "2"),
    "produces": lambda world: world.more.update(produces={"out": "out/*", "log": "log/*"}),
    "params": lambda world: world.params.update(region="eu"),
    "key": lambda world: world.rule.update(key=("x",)),
    "key order": lambda world: world.rule.update(key=("y", "x")),
    "variable set": lambda world: os.environ.update(TOWLINE_TEST_CACHED="1"),
    "input content": lambda world: (world.workdir / "in.txt").write_text("two"),
    "input added": lambda world: (world.workdir / "in2.txt").write_text(""),
    "pattern": lambda world: world.rule.update(inputs=("in*.txt", "more/*")),
    "portable": lambda world: world.rule.update(portable=True),
    "upstream value": lambda world: setattr(world, "upstream", Succeeded([1, 3], task_id="fetch")),
    "upstream state": lambda world: setattr(world, "upstream", Skipped(reason=Reason(code="condition"))),
    "upstream reason": lambda world: setattr(world, "upstream", Skipped(reason=Reason(code="deselected"))),
    "consumed": lambda world: setattr(
        world,
        "upstream",
        Succeeded([1, 2], artifacts=(ArtifactRef(task_id="f", name="data", digest="d", size_bytes=1, kind="tree"),)),
    ),
}


@clause("CACHE-02")
@pytest.mark.parametrize("change", CHANGES)
async def test_any_single_change_misses(change: str, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that the result could depend on is left out; undone, it hits again."""
    monkeypatch.setenv("TOWLINE_TEST_CACHED", "")
    monkeypatch.delenv("TOWLINE_TEST_CACHED")
    world.rule = {"inputs": ("in*.txt",), "env": ("TOWLINE_TEST_CACHED",), "key": ("x", "y")}
    (world.workdir / "in.txt").write_text("one")
    assert [await world.run(), await world.run()] == ["ran", "cached"]

    CHANGES[change](world)

    assert [await world.run(), await world.run()] == ["ran", "cached"]


@clause("CACHE-02")
async def test_place_and_time_are_no_part_of_it(world: World, tmp_path: Path) -> None:
    """A colleague's checkout lies elsewhere and is younger."""
    world.rule = {"inputs": ("in.txt",)}
    (world.workdir / "in.txt").write_text("one")
    await world.run()
    moved = World(tmp_path / "other")
    moved.rule, moved.store = world.rule, world.store
    (moved.workdir / "in.txt").write_text("one")

    assert await moved.run() == "cached"


@clause("CACHE-04")
async def test_inputs_that_change_while_the_task_runs_are_not_kept(world: World) -> None:
    """The result of a half-edited source must not be served under the digest of the repaired one (R5)."""
    world.rule = {"inputs": ("in.txt",)}
    (world.workdir / "in.txt").write_text("one")

    assert await world.run(during=lambda: (world.workdir / "in.txt").write_text("two") and None) == "ran"

    assert "file in.txt changed while the task ran" in world.warnings()
    assert [await world.run(), await world.run()] == ["ran", "cached"]
    (world.workdir / "in.txt").write_text("one")
    assert await world.run() == "ran"


@clause("CACHE-07")
async def test_trouble_is_a_warning_and_a_miss(world: World) -> None:
    """The cache makes things faster; it never makes them fail."""
    await world.run()
    [entry] = (world.store.root / "entries").iterdir()
    good = entry.read_bytes()

    entry.write_bytes(b"{")
    assert await world.run() == "ran"
    assert "the cache is of no use" in world.warnings()
    entry.write_bytes(good)
    [blob] = world.store.artifacts.root.iterdir()
    blob.write_bytes(b"damaged")
    world.artifacts = DirectoryArtifactStore(world.folder / "empty")
    assert await world.run() == "ran"
    assert "the cached artifacts are of no use" in world.warnings()
    world.store.root.rename(world.folder / "gone")
    world.store.root.write_text("no folder")
    assert await world.run() == "ran"
    assert "the result is not cached" in world.warnings()


@clause("CACHE-08")
async def test_a_restore_clears_old_files_and_leaves_others(world: World) -> None:
    """A file that the cached run did not make must not look as if it had."""
    await world.run()
    (world.workdir / "out/stale").write_text("old")
    (world.workdir / "mine").write_text("mine")

    assert await world.run() == "cached"

    assert sorted(os.listdir(world.workdir / "out")) == ["file"]
    assert (world.workdir / "mine").read_text() == "mine"


@clause("CACHE-09")
async def test_a_miss_says_what_changed(world: World) -> None:
    """Names tell it; values stay out of logs."""
    world.rule = {"key": ("hunter2",)}
    await world.run()
    world.rule = {"key": ("hunter3",)}
    await world.run()

    debug = [text for level, text in world.said if level == "debug"]
    assert debug == ["not in the cache: it was never cached", "not in the cache: key[0] changed"]
    assert "hunter" not in str(world.said)


@clause("CACHE-11")
async def test_a_dependency_value_without_json_form_switches_the_cache_off(world: World) -> None:
    """What cannot be digested could change unseen; it is said once, and the task simply runs."""
    world.upstream = Succeeded([object()], task_id="fetch")

    assert [await world.run(), await world.run()] == ["ran", "ran"]

    assert "the result of fetch, which it uses, cannot be encoded" in world.warnings()


@clause("CACHE-03")
async def test_without_a_program_file_a_version_is_needed(world: World) -> None:
    """The code of a notebook cell has no file to digest (MOD-27)."""
    world.root, world.version = None, None

    assert [await world.run(), await world.run()] == ["ran", "ran"]

    assert "give it a version=" in world.warnings()


@clause("CACHE-05")
async def test_only_what_really_ran_is_kept(world: World) -> None:
    """A value taken from an earlier run has no inputs of this one."""
    runs, task = world.runs()
    await runs.look_up(task)
    await runs.save(task, Succeeded({"a": 1}, task_id="build", origin="kept"))

    assert await world.run() == "ran"
