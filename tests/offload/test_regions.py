"""Regions of shared memory: used again where nobody can look at them, given back when nobody needs them (OFF-708, OFF-709)."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from clusters import together

from towline.errors.offload import GraphFailedError
from towline.offload import Array, KernelRegistry, kernel, mappings, regions, staging
from towline.offload.mappings import FOLDER, Mappings
from towline.offload.master_endings import kernel_ended
from towline.offload.messages import ErrorReport, Result
from towline.offload.regions import IDLE_S, Region, RegionPool
from towline.offload.segment_memory import SegmentMemory
from towline.testing import clause

pytestmark = pytest.mark.anyio


@pytest.fixture
def pool() -> Iterator[RegionPool]:
    made = RegionPool()
    yield made
    made.close()


def content(value: int, size: int = 5_000) -> memoryview:
    return memoryview(bytes([value]) * size)


def taken(pool: RegionPool, nbytes: int = 5_000) -> Region:
    region = pool.take(nbytes)
    assert region is not None
    return region


def on_disk(region: str) -> bool:
    return Path(FOLDER, region).exists()


@clause("OFF-709")
def test_a_staged_segment_is_used_again_when_its_reader_let_it_go(pool: RegionPool) -> None:
    """Making a file costs more than the copy into it; the next version of an array has the same size."""
    first = pool.staging.stage(1, 1, content(1))
    assert first is not None
    pool.staging.lend(1, session=7, transfer=3)
    pool.staging.unstage(1)
    while_lent = pool.staging.stage(1, 2, content(2))
    pool.staging.returned(7, 3)
    after = pool.staging.stage(2, 1, content(3))

    assert while_lent is not None
    assert while_lent[0] != first[0]
    assert after == first
    assert bytes(RegionPool().attach(first, 5_000) or b"") == bytes(content(3))


@clause("OFF-709")
def test_one_of_two_readers_is_not_enough(pool: RegionPool) -> None:
    """A worker that said nothing may still read."""
    first = pool.staging.stage(1, 1, content(1))
    pool.staging.lend(1, 7, 3)
    pool.staging.lend(1, 8, 3)
    pool.staging.unstage(1)
    pool.staging.returned(7, 3)
    pool.staging.returned(7, 3)
    pool.staging.returned(9, 3)

    assert pool.staging.stage(1, 2, content(2)) != first


@clause("OFF-709")
@pytest.mark.parametrize("outdated_first", [False, True])
def test_the_segments_of_a_lost_worker_are_never_used_again(pool: RegionPool, outdated_first: bool) -> None:
    """A worker that is thought dead may be stopped, and wake up in the middle of a kernel: it reads what it was given."""
    first = pool.staging.stage(1, 1, content(1))
    assert first is not None
    reader = Mappings()
    seen = reader.view(first, 5_000, writable=False)
    pool.staging.lend(1, 7, 3)
    if outdated_first:
        pool.staging.unstage(1)
        pool.staging.session_ended(7)
    else:
        pool.staging.session_ended(7)
        assert pool.staging.stage(1, 1, content(1)) == first  # others may still map this version
        pool.staging.unstage(1)
    pool.staging.returned(7, 3)
    second = pool.staging.stage(1, 2, content(2))

    assert second != first
    assert not on_disk(first[0])
    assert bytes(seen or b"") == bytes(content(1))


@clause("OFF-709")
def test_segments_that_nobody_returns_are_not_waited_for_beyond_a_limit(
    pool: RegionPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that keeps every version must not fill the host's memory through its master."""
    monkeypatch.setattr(staging, "RESTING_LIMIT_BYTES", 12_000)
    names = []
    for version in range(1, 5):
        segment = pool.staging.stage(1, version, content(version))
        assert segment is not None
        names.append(segment[0])
        pool.staging.lend(1, 7, version)
    pool.staging.unstage(1)

    assert [on_disk(name) for name in names] == [False, False, True, True]


@clause("OFF-708")
def test_a_region_with_a_living_fence_is_unlinked(pool: RegionPool) -> None:
    """Who was given it and has not ended may still write: nobody may read there."""
    region = taken(pool)
    region.users.add(11)
    pool.retire(region, viewed=False)
    other = taken(pool)
    pool.retire(other, viewed=False)

    assert not on_disk(region.name)
    assert taken(pool) is other


@clause("OFF-708")
@pytest.mark.parametrize(
    ("status", "kind", "ended"),
    [("ok", "", True), ("failed", "kernel_error", True), ("failed", "crashed", True), ("failed", "stale_input", True),
     ("failed", "cancelled", False), ("cancelled", "cancelled", False), ("failed", "drained", False),
     ("failed", "time_limit", False), ("failed", "", False)],
)  # fmt: skip
def test_a_result_says_whether_the_kernel_has_ended(status: str, kind: str, ended: bool) -> None:
    """A thread cannot be stopped: that nobody wants its result does not mean that it writes no more."""
    assert kernel_ended(Result(1, 2, status, error=ErrorReport(kind) if kind else None)) is ended


@clause("OFF-708")
def test_idle_regions_are_given_back(pool: RegionPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory kept for the next array is memory that others on this host lack."""
    monkeypatch.setattr(regions, "IDLE_LIMIT_BYTES", 12_000)
    three = [taken(pool) for _ in range(3)]
    for region in three:
        pool.retire(region, viewed=False)
    by_limit = [on_disk(region.name) for region in three]
    pool.tidy(100.0)
    pool.tidy(100.0 + IDLE_S)
    early = on_disk(three[2].name)
    pool.tidy(101.0 + IDLE_S)

    assert by_limit == [False, True, True]
    assert early
    assert [on_disk(region.name) for region in three] == [False] * 3


@clause("OFF-708")
def test_idle_regions_make_way_for_an_array_of_another_size(pool: RegionPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container with a small /dev/shm what was kept for speed must not be why there is none left."""
    idle = taken(pool)
    pool.retire(idle, viewed=False)
    allocate = os.posix_fallocate

    def full(handle: int, offset: int, nbytes: int) -> None:
        if on_disk(idle.name):
            raise OSError(errno.ENOSPC, "No space left on device")
        allocate(handle, offset, nbytes)

    monkeypatch.setattr(os, "posix_fallocate", full)

    assert taken(pool, 9_000).size == 9_000
    assert not on_disk(idle.name)


@clause("OFF-708")
def test_a_mapping_is_kept_until_its_file_is_gone(pool: RegionPool) -> None:
    """Mapping a large region page by page takes longer than many kernels; memory that the master gave up must not stay."""
    kept = Mappings()
    region = taken(pool)
    first = kept.view(region.segment, 5_000, writable=True)
    again = kept.view(region.segment, 100, writable=True)
    assert first is not None
    assert again is not None
    assert first.obj is again.obj
    kept.tidy(10.0)
    assert len(kept) == 1
    pool.lose(region)
    kept.tidy(10.0 + mappings.TIDY_EVERY_S)

    assert (len(kept), kept.mapped_bytes) == (0, 0)
    assert kept.view(region.segment, 5_000, writable=True) is None
    assert len(first) == 5_000  # whoever uses it keeps it


@clause("OFF-708")
def test_mappings_have_a_limit(pool: RegionPool) -> None:
    """The least recently used goes first; one larger than the limit is mapped all the same."""
    kept = Mappings(12_000)
    three = [taken(pool).segment for _ in range(3)]
    for segment in (three[0], three[1], three[0], three[2]):
        kept.view(segment, 5_000, writable=False)
    known = [(segment[0], False) in kept._known for segment in three]
    large = kept.view(taken(pool, 40_000).segment, 40_000, writable=False)

    assert known == [True, False, True]
    assert large is not None
    assert kept.mapped_bytes == 40_000


@clause("OFF-708")
def test_many_small_segments_do_not_use_up_the_mappings_of_a_process(
    pool: RegionPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux allows 65,530 of them; the next one, of whatever library, is then refused as if memory had ended."""
    monkeypatch.setattr(regions, "IDLE_LIMIT_COUNT", 2)
    kept = Mappings(limit_count=2)
    three = [taken(pool) for _ in range(3)]
    for region in three:
        kept.view(region.segment, 5_000, writable=False)
    for region in three:
        pool.retire(region, viewed=False)

    assert [(region.name, False) in kept._known for region in three] == [False, True, True]
    assert [on_disk(region.name) for region in three] == [False, True, True]


@clause("OFF-806")
@pytest.mark.parametrize(
    ("name", "offset", "nbytes"),
    [("../etc/passwd", 0, 10), ("towline-0-1-x", 0, 10), ("", 0, 10), (None, -1, 10), (None, 4_999, 2), (None, 0, 5_001),
     (None, 0, 0), (None, 5_001, 1)],
)  # fmt: skip
def test_a_segment_is_mapped_only_within_a_file_of_ours(
    pool: RegionPool, name: str | None, offset: int, nbytes: int
) -> None:
    """Names and offsets come from frames, which are not trusted."""
    kept = Mappings()
    own = taken(pool)
    for _ in range(2):  # the second time, our own file is mapped already
        assert kept.view((own.name if name is None else name, offset), nbytes, writable=False) is None
        kept.view(own.segment, 10, writable=False)


@clause("OFF-709")
def test_a_loan_is_over_when_no_array_over_its_bytes_is_left(pool: RegionPool) -> None:
    """A kernel goes on after its call was cancelled: the cache has let the copy go, the kernel's array has not."""
    memory = SegmentMemory(RegionPool())
    segment = pool.staging.stage(1, 1, content(5))
    assert segment is not None
    piece = memory.borrow(segment, 5_000, (1, 9))
    assert piece is not None
    row = piece.array(np.dtype(np.uint8), (50, 100))[7]
    del piece
    memory.decline((1, 9))  # a copy of the frame that lent it came late
    held = memory.returned()
    value = int(row[0])
    del row

    assert held == []
    assert value == 5
    assert memory.returned() == [(1, 9)]
    assert memory.returned() == []


@clause("OFF-709")
def test_a_loan_that_nobody_waits_for_is_returned(pool: RegionPool) -> None:
    """Else the master would keep the segment for a worker that never mapped it."""
    memory = SegmentMemory(RegionPool())
    memory.decline((1, 9))

    assert memory.returned() == [(1, 9)]


@clause("OFF-708")
def test_memory_of_a_result_is_used_again_when_no_array_over_it_is_left() -> None:
    """A worker's own region goes to the next job only when no kernel of an earlier one can look at it."""
    own = RegionPool()
    memory = SegmentMemory(own, shared_from_bytes=100)
    piece = memory.allocate(5_000)
    assert piece is not None
    first = piece.segment
    array = piece.array(np.dtype(np.uint8), (5_000,))
    del piece
    second = memory.allocate(5_000)
    del array
    third = memory.allocate(5_000)
    own.close()

    assert second is not None
    assert third is not None
    assert second.segment != first
    assert third.segment == first


@clause("OFF-708")
@pytest.mark.parametrize("slots", [1, 2])
async def test_a_thread_beyond_its_limit_writes_where_nobody_reads(slots: int) -> None:
    """It cannot be stopped, and the region that it was given is the right size for the next call.

    With one slot, another thread takes the place of the one that was given up.
    """
    import threading

    registry = KernelRegistry()
    go_on, written = threading.Event(), threading.Event()

    @kernel("stubborn", executor="thread", overwrites=True, registry=registry)
    def stubborn(out: Array) -> None:
        go_on.wait(20)
        out[...] = 99
        written.set()

    @kernel("ones", executor="thread", overwrites=True, registry=registry)
    def ones(out: Array) -> None:
        out[...] = 1

    async with together("shared memory", registry=registry, slots=slots) as t:
        left, right = (t.runtime.zeros(50_000, float, shared=True) for _ in range(2))
        late = t.runtime.graph()
        late.add(stubborn, [], [left], place="remote", time_limit_s=0.05)
        with pytest.raises(GraphFailedError):
            await late.execute()
        graph = t.runtime.graph()
        graph.add(ones, [], [right], place="remote")
        await graph.execute()
        go_on.set()
        await asyncio.get_running_loop().run_in_executor(None, written.wait, 20)

        assert (right.array == 1).all()
        assert (left.array == 0).all()
