"""What a master's engine hears while its journal is being written."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from towline.clock import SystemClock
from towline.execution.remote_engine import RemoteEngine
from towline.testing import clause

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.virtual_time


class SlowWriter:
    """A journal on a server: each write takes a round trip of a second."""

    def __init__(self) -> None:
        self.plan = SimpleNamespace(document=SimpleNamespace(tasks=[]))
        self.written: list[Any] = []
        self.snapshot_is_due = False

    def next_seq(self) -> int:
        return len(self.written) + 1

    def write(self, records: Sequence[Any]) -> Any:
        return self._write(records)

    async def _write(self, records: Sequence[Any]) -> None:
        await asyncio.sleep(1.0)
        self.written += records


def _engine(writer: SlowWriter) -> RemoteEngine:
    engine = RemoteEngine(
        writer=writer,
        scheduler=SimpleNamespace(on=lambda event, now: []),
        events=SimpleNamespace(emit_facts=lambda facts: None),
        output=SimpleNamespace(said=False),
        ended_tasks=None,
        growth=None,
        make_run=None,
        decided=None,
        forget=None,
        clock=SystemClock(),
        worker_id="m",
    )
    engine.runner = None  # type: ignore[assignment] # nothing starts here
    return engine


def _task(name: str) -> Any:
    row = SimpleNamespace(id=name, state="pending")
    return SimpleNamespace(row=row, attempt=SimpleNamespace(epoch=1, worker_id="w"), first_attempt=0)


@clause("COORD-R24")
async def test_what_comes_during_a_write_is_written_next() -> None:
    """Nothing else may ever come: then the master waited for it forever, requeued no lost lease, and the run hung."""
    writer = SlowWriter()
    engine = _engine(writer)
    engine.moved(_task("build"), "queued")
    await asyncio.sleep(0.5)  # the write of that is under way
    engine.moved(_task("build"), "running")
    async with asyncio.timeout(10):
        await engine.make_durable()
    assert [record.state for record in writer.written] == ["queued", "running"]


@clause("COORD-R24")
async def test_a_wait_for_the_journal_that_begins_during_a_write_ends() -> None:
    """The same with nothing to write: the answer alone is owed."""
    engine = _engine(SlowWriter())
    engine.moved(_task("build"), "queued")
    await asyncio.sleep(0.5)
    async with asyncio.timeout(10):
        await engine.make_durable()


@clause("PLAN-41")
async def test_a_checkpoint_during_a_write_is_written_next() -> None:
    """A long body whose last place is known to nobody would begin further back than it must."""
    writer = SlowWriter()
    engine = _engine(writer)
    engine.moved(_task("build"), "queued")
    await asyncio.sleep(0.5)
    engine.checkpoint(_task("build"), 7, 10)
    await asyncio.sleep(5.0)
    assert [getattr(record, "done", None) for record in writer.written] == [None, 7]
