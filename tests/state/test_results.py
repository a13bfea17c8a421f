"""Results: where they lie, what a power cut or a flipped bit does, what compaction keeps."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from state.envs import started_plan
from towline.errors import ResultCorruptError, StateTooLargeError
from towline.identity import digest_of
from towline.state.results import LINE_LIMIT_BYTES, ResultPlace
from towline.testing import clause
from towline.testing.killpoints import KillPoints


@clause("STATE-12")
def test_small_results_are_lines_and_large_ones_files(tmp_path: Path) -> None:
    """A file per result costs a hundred times as much as a line."""

    async def main() -> None:
        store, plan = await started_plan(tmp_path)
        small, edge, large, broken = b'{"a":1}', b"1" * LINE_LIMIT_BYTES, b"1" * (LINE_LIMIT_BYTES + 1), b"[1,\n2]"
        places = [plan.results.append(f"t{number}", data) for number, data in enumerate((small, edge, large, broken))]
        assert [place.offset for place in places] == [0, len(small) + 1, None, None]
        assert places[0].digest == digest_of(small)
        assert (tmp_path / "results.jsonl").read_bytes() == small + b"\n" + edge + b"\n"
        assert sorted(path.name for path in (tmp_path / "results").iterdir()) == ["t2.json", "t3.json"]
        for number, data in enumerate((small, edge, large, broken)):
            assert await plan.results.read(f"t{number}", places[number]) == data
        with pytest.raises(StateTooLargeError):
            plan.results.append("t5", bytes(64 * 1024 * 1024 + 1))
        await plan.close()
        await store.close()

    asyncio.run(main())


@clause("PLAN-37")
def test_gone_and_cut_results_are_missing_and_changed_ones_corrupt(tmp_path: Path) -> None:
    """A power cut leaves files short: the task runs again. A changed value must never be used."""

    async def main() -> None:
        store, plan = await started_plan(tmp_path)
        lines = [plan.results.append(name, b'"%b"' % name.encode()) for name in ("a", "b")]
        files = [plan.results.append(name, name.encode() * 20_000) for name in ("c", "d", "e")]
        places = list(zip("abcde", [*lines, *files], strict=True))
        assert await plan.results.missing(places) == []
        await plan.close()
        (tmp_path / "results.jsonl").write_bytes(b'"a"\n"b')
        (tmp_path / "results" / "c.json").unlink()
        (tmp_path / "results" / "d.json").write_bytes(b"")
        (tmp_path / "results" / "e.json").write_bytes(b"e" * 100)
        assert await plan.results.missing(places) == ["b", "c", "d", "e"]
        assert await plan.results.read("b", lines[1]) is None
        (tmp_path / "results.jsonl").write_bytes(b'"x"\n"b"\n')
        assert await plan.results.missing(places[:2]) == []
        with pytest.raises(ResultCorruptError, match=r"results\.jsonl") as corrupt:
            await plan.results.read("a", lines[0])
        assert corrupt.value.recorded == lines[0].digest
        (tmp_path / "results.jsonl").unlink()
        assert await plan.results.missing(places[:2]) == ["a", "b"]
        await store.close()

    asyncio.run(main())


@clause("STATE-12")
def test_a_torn_last_line_is_dropped_before_the_next_result(tmp_path: Path) -> None:
    """A killed owner leaves half a line; the next one's results must not be glued to it."""

    async def main() -> None:
        store, plan = await started_plan(tmp_path)
        plan.results.append("a", b"[1]")
        await plan.close()
        await store.close()
        (tmp_path / "results.jsonl").write_bytes(b"[1]\n[2")
        store, plan = await started_plan(tmp_path)
        place = plan.results.append("b", b"[3]")
        assert place.offset == 4
        assert await plan.results.read("b", place) == b"[3]"
        await plan.close()
        await store.close()

    asyncio.run(main())


@clause("STATE-12", "TEST-08")
def test_compaction_keeps_what_is_referred_to_at_every_kill_point(tmp_path: Path) -> None:
    """Old offsets stay good until the plan says the new ones, because a digest finds its line."""
    kept = [2, 5, 9]

    async def compact(root: Path, point_files: object, places: list[ResultPlace]) -> None:
        store, plan = await started_plan(root, files=point_files)
        places.extend(plan.results.append(f"t{number}", b"[%d]" % number) for number in range(10))
        places.append(plan.results.append("large", b"1" * 20_000))
        moved = await plan.results.compact([(f"t{number}", places[number]) for number in kept], force=True)
        assert [moved[f"t{number}"].offset for number in kept] == [0, 4, 8]
        assert plan.results.append("new", b"[77]").offset == 12
        await plan.close()
        await store.close()

    async def check(root: Path, places: list[ResultPlace], *, compacted: bool) -> None:
        store, plan = await started_plan(root)
        if len(places) > 10:
            for number in kept:
                assert await plan.results.read(f"t{number}", places[number]) == b"[%d]" % number
        if compacted:
            assert (root / "results.jsonl").read_bytes() == b"[2]\n[5]\n[9]\n[77]\n"
            assert list((root / "results").iterdir()) == []
        await plan.close()
        await store.close()

    for point in KillPoints():
        root, places = tmp_path / str(point.number), []
        with point.watching():
            asyncio.run(compact(root, point.files, places))
        asyncio.run(check(root, places, compacted=not point.hit))


@clause("STATE-12")
def test_little_garbage_is_not_compacted(tmp_path: Path) -> None:
    """Rewriting megabytes to save some lines is not worth it at each compaction of the plan."""

    async def main() -> None:
        store, plan = await started_plan(tmp_path)
        places = [(f"t{number}", plan.results.append(f"t{number}", b"[%d]" % number)) for number in range(10)]
        assert await plan.results.compact(places[:5]) == {}
        await plan.close()
        await store.close()

    asyncio.run(main())
