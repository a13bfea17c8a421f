"""Id maps: which record of the target came from which of the source."""

from __future__ import annotations

import sqlite3
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from towline.errors import IdMapConflictError
from towline.state.id_maps import IdMap, SqlIdMap
from towline.testing import clause


@pytest.fixture(params=["file", "sqlite", "postgres"])
def ids(request: Any, tmp_path: Path) -> Any:
    if request.param == "file":
        with IdMap(tmp_path / "ids.sqlite") as opened:
            yield opened
        return
    connection = sqlite3.connect(":memory:") if request.param == "sqlite" else request.getfixturevalue("postgres")()
    yield SqlIdMap(connection, "ids")
    connection.rollback()
    connection.close()


@clause("CUR-20")
def test_pairs_are_kept_and_a_second_target_is_a_conflict(ids: IdMap | SqlIdMap) -> None:
    """Two records of the target for one of the source is the duplicate that migrations dread."""
    ids.put("a", "1")
    ids.put("a", "1")
    ids.put_many([("b", "2"), ("c", "3"), ("b", "2")])
    assert (ids.get("a"), ids.get("b"), ids.get("zz")) == ("1", "2", None)
    for call in (
        lambda: ids.put("a", "9"),
        lambda: ids.put_many([("x", "1"), ("b", "9")]),
        lambda: ids.put_many([("y", "1"), ("y", "2")]),
        lambda: ids.skip("a", "no"),
    ):
        with pytest.raises(IdMapConflictError):
            call()
    assert list(ids.items()) == [("a", "1"), ("b", "2"), ("c", "3")], "nothing of a refused call stays"


@clause("CUR-20")
def test_skipped_sources_have_no_target_until_they_get_one(ids: IdMap | SqlIdMap) -> None:
    """An operator repairs the source later."""
    ids.skip("a", "no tail number")
    ids.skip("a", "again")
    assert ids.get("a") is None
    assert list(ids.items()) == []
    ids.put("a", "1")
    assert list(ids.items()) == [("a", "1")]


@clause("CUR-20", "CUR-21")
def test_seed_fills_in_what_is_absent(ids: IdMap | SqlIdMap) -> None:
    """After a crash between target and map, the target's provenance knows more than the map."""
    ids.put("a", "1")
    ids.skip("s", "no")
    ids.seed([("a", "9"), ("b", "2"), ("s", "5")])
    ids.seed([])
    assert list(ids.items()) == [("a", "1"), ("b", "2")]
    many = [(f"k{number:04}", str(number)) for number in range(1200)]
    ids.put_many(many)
    ids.put_many(many)
    assert len(list(ids.items())) == 1202


@clause("CUR-21", "CUR-22")
@pytest.mark.parametrize("dies_after", ["effect", "map", "nothing"])
def test_a_rerun_makes_no_duplicate(dies_after: str, tmp_path: Path) -> None:
    """Effect with provenance, then the map, then the cursor: a death between any two, and a run from the start."""
    target: dict[str, str] = {}  # new id -> source: the provenance

    def migrate(die: bool) -> None:
        with IdMap(tmp_path / "ids.sqlite") as ids:
            ids.seed([(source, new) for new, source in target.items()])
            for source in ("a", "b", "c"):
                if ids.get(source) is None:
                    new = f"n{len(target)}"
                    target[new] = source
                    if die and source == "b" and dies_after == "effect":
                        return
                    ids.put(source, new)
                    if die and source == "b" and dies_after == "map":
                        return

    migrate(die=True)
    migrate(die=False)
    assert sorted(target.values()) == ["a", "b", "c"]


def test_threads_share_a_map(tmp_path: Path) -> None:
    """Sync bodies of one run hold the same map."""
    ids = IdMap(tmp_path / "ids.sqlite")
    failed: list[BaseException] = []

    def put(start: int) -> None:
        try:
            for number in range(start, start + 20):
                ids.put(f"k{number:03}", str(number))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=put, args=(start,)) for start in (0, 10, 40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert failed == []
    assert len(list(ids.items())) == 50
    ids.close()
    ids.close()
    assert ids.get("k001") == "1"
    ids.close()


def test_the_file_is_private(tmp_path: Path) -> None:
    """Ids of the source are often personal."""
    with IdMap(tmp_path / "ids.sqlite") as ids:
        ids.put("a", "1")
        assert stat.S_IMODE((tmp_path / "ids.sqlite").stat().st_mode) == 0o600


def test_a_map_in_the_target_follows_its_transaction(tmp_path: Path) -> None:
    """Rolled back with the effect, committed with it."""
    connection = sqlite3.connect(tmp_path / "t.sqlite")
    ids = SqlIdMap(connection, "ids")
    ids.put("a", "1")
    connection.rollback()
    assert ids.get("a") is None
    ids.put("a", "2")
    connection.commit()
    assert ids.get("a") == "2"
    connection.close()


@pytest.mark.parametrize("table", ["", "a b", "a;drop", "1a", "a.b.c", 'a"'])
def test_a_table_name_cannot_carry_a_statement(table: str) -> None:
    """Names come from configuration."""
    make: Callable[[], SqlIdMap] = lambda: SqlIdMap(sqlite3.connect(":memory:"), table)  # noqa: E731
    with pytest.raises(ValueError, match="table name"):
        make()
