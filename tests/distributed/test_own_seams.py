"""Stores, coordinator and discovery of the user's own, given by ``Options`` (COORD-C87)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from towline import Context, Options, Pipeline, SyncContext, module, result_of
from towline.artifacts.directory import DirectoryArtifactStore
from towline.cli.together import distributed_of
from towline.coordination.memory import MemoryCoordinators
from towline.distributed.discovery import DiscoveredCoordinators, without_user
from towline.distributed.options import DistributedOptions
from towline.errors import ConfigurationError, RunUnknownError
from towline.execution.run_request import RunRequest
from towline.state.memory import MemoryStore
from towline.testing import clause

if TYPE_CHECKING:
    from towline.artifacts.store import Stored
    from towline.coordination.records import MasterEndpoint

pytestmark = pytest.mark.anyio


class CountingArtifacts(DirectoryArtifactStore):
    """A store of the user's own."""

    puts = 0

    async def put(self, chunks: object, *, run_id: str | None = None) -> Stored:
        self.puts += 1
        return await super().put(chunks, run_id=run_id)  # type: ignore[arg-type]


class Noticeboard:
    """A discovery of the user's own."""

    def __init__(self) -> None:
        self.endpoint: MasterEndpoint | None = None
        self.seen: list[MasterEndpoint] = []
        self.published = asyncio.Event()

    async def publish(self, endpoint: MasterEndpoint) -> None:
        self.endpoint = endpoint
        self.seen.append(endpoint)
        self.published.set()

    async def withdraw(self) -> None:
        self.endpoint = None

    async def find(self, run_id: str) -> MasterEndpoint | None:
        return self.endpoint if self.endpoint is not None and self.endpoint.run_id == run_id else None


@module(produces={"page": "page.txt"})
def write(ctx: SyncContext) -> int:
    (ctx.workdir / "page.txt").write_text("page")
    return 3


@module(consumes=[write.artifact("page", into="in")])
async def read(ctx: Context, number: int = result_of(write)) -> str:
    return "x" * number + (ctx.workdir / "in" / "page.txt").read_text()


@clause("COORD-C87")
def test_own_stores_take_the_place_of_the_usual_ones(tmp_path: Path) -> None:
    """State and files go where the user says, and nowhere else."""
    store, artifacts = MemoryStore(), CountingArtifacts(tmp_path / "own")
    asked: list[str] = []

    def state_of(pipeline: str) -> MemoryStore:
        asked.append(pipeline)
        return store

    options = Options(state_store=state_of, artifact_store=artifacts)
    report, _ = asyncio.run(Pipeline("pages", [read]).run_for(RunRequest(options=options, workdir=tmp_path)))

    assert report.status == "succeeded"
    assert asked == ["pages"]
    assert "plan.json" in store.documents
    assert artifacts.puts == 1
    assert not list(tmp_path.rglob("plan.json"))
    assert not list(tmp_path.glob(".towline/*/artifacts"))
    assert report.path.startswith(str(tmp_path / ".towline" / "pages" / "runs"))


@clause("COORD-C83", "COORD-C87")
def test_two_of_one_kind_are_refused(tmp_path: Path) -> None:
    """A state that half of the run uses is worse than an error."""
    with pytest.raises(ConfigurationError, match="each counts as the state"):
        Options(state=str(tmp_path), state_store=lambda _: MemoryStore())
    with pytest.raises(ConfigurationError, match="has a coordinator of its own") as caught:
        distributed_of({"coordinator": "redis://:hunter2@h:1"}, {}, Options(coordinator=MemoryCoordinators()))
    assert "hunter2" not in str(caught.value)


@clause("COORD-C87")
async def test_workers_find_the_master_by_an_own_discovery(tmp_path: Path) -> None:
    """While a run lives, its endpoint is known; afterwards it is withdrawn."""
    board = Noticeboard()

    @module
    async def look(ctx: Context) -> str:
        async with asyncio.timeout(10):
            await board.published.wait()
        return board.seen[0].urls[0]

    request = RunRequest(
        options=Options(state="memory:", discovery=board),
        distributed=DistributedOptions(coordinator="memory:"),
        run_id="r-1",
        workdir=tmp_path,
    )
    report, _ = await Pipeline("seen", [look]).run_for(request)

    assert report.status == "succeeded"
    assert [(one.run_id, one.urls) for one in board.seen] == [("r-1", ("memory:",))]
    assert board.endpoint is None


@clause("COORD-C87")
async def test_a_worker_waits_for_the_endpoint_and_says_what_it_missed() -> None:
    """No endpoint within the registration timeout: an error with the run id, not a hang."""
    found = DiscoveredCoordinators(Noticeboard(), limit_s=0.0, poll_s=1.0, lost_after_s=1.0)
    with pytest.raises(RunUnknownError, match="r-1"):
        await found.create_worker("r-1")
    with pytest.raises(ConfigurationError, match="name it for the master"):
        await found.create_master("r-1")


@clause("COORD-C87")
def test_what_is_published_has_no_password() -> None:
    """A notice board is read by many."""
    assert without_user("redis://me:secret@host:1/2?x=1") == "redis://host:1/2?x=1"
    assert without_user("redis://host:1") == "redis://host:1"
