"""The parts of the flight log move that need no run: reading, judging, writing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import answer
from move import files
from move.judge import Directory
from move.legacy import Legacy
from move.mapping import read_mapping
from move.records import Flight, sheet_key
from move.target import TABLES, Target


@pytest.fixture(scope="module")
def legacy(legacy_file: Path) -> Legacy:
    """The source, opened."""
    return Legacy(str(legacy_file))


def test_source_holds_what_the_docs_say(legacy: Legacy) -> None:
    """The README and the gates speak of these counts."""
    counts = {table: legacy.count(table) for table in ("airlines", "airports", "planes", "sheets", "flights")}
    assert counts == {"airlines": 16, "airports": 1_458, "planes": 3_322, "sheets": 1_092, "flights": 336_776}
    months = legacy.flights_per_month("")
    assert (len(months), months["01"], sum(months.values())) == (12, 27_004, 336_776)
    assert sum(sheet.rows for sheet in legacy.sheets()) == 26_115


def test_findings_are_those_that_the_docs_count(legacy: Legacy) -> None:
    """An operator is told of 38 airports, not of 37."""
    directory = Directory(legacy.directory())
    airports = list(legacy.airports())
    assert Counter(directory.judge(airport, {}).kind for airport in airports) == {
        "matched": 1_307,
        "unmatched": 113,
        "ambiguous": 38,
    }
    sheets = {sheet.key for sheet in legacy.sheets()}
    codes, tails = {airport.code for airport in airports}, {plane.tail for plane in legacy.planes()}
    missing: Counter[str] = Counter()
    unknown_tails, unknown_dests = set(), set()
    for month in legacy.flights_per_month(""):
        for flight in legacy.flights(month, ""):
            missing["tail"] += flight.tail is None
            missing["sheet"] += sheet_key(flight.origin, flight.date) not in sheets
            if flight.tail is not None and flight.tail not in tails:
                unknown_tails.add(flight.tail)
            if flight.dest not in codes:
                unknown_dests.add(flight.dest)
    assert missing == {"tail": 2_512, "sheet": 776}
    assert len(unknown_tails) == 721
    assert unknown_dests == {"BQN", "PSE", "SJU", "STT"}
    assert all(directory.added(code) for code in unknown_dests)


def test_answers_leave_nothing_ambiguous(legacy: Legacy, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The gate opens when every question has its answer, null among them."""
    mapping = tmp_path / "mapping.json"
    mapping.write_text('{"airports": {}}')
    assert read_mapping(str(tmp_path / "none.json")).airports == {}
    answers = answer.answers(legacy)
    directory = Directory(legacy.directory())
    kinds = Counter(directory.judge(airport, answers).kind for airport in legacy.airports())
    assert kinds["ambiguous"] == 0
    assert kinds["answered"] == 38
    mapping.write_text('{"airport": {}}')
    with pytest.raises(ValueError, match=r"mapping\.json"):
        read_mapping(str(mapping))


def test_keys_rise_through_a_file(legacy: Legacy, tmp_path: Path) -> None:
    """A cursor needs keys that rise; a file must give back what went in, and the same bytes each time."""
    one, two = tmp_path / "02.jsonl.gz", tmp_path / "again.jsonl.gz"
    assert files.write(one, legacy.flights("02", "JFK")) == files.write(two, legacy.flights("02", "JFK")) > 7_000
    assert one.read_bytes() == two.read_bytes()
    flights = list(files.read(one, Flight))
    keys = [flight.key for flight in flights]
    assert keys == sorted(set(keys))
    assert flights == list(legacy.flights("02", "JFK"))


def test_damaged_sheet_is_noticed(legacy: Legacy, tmp_path: Path) -> None:
    """A flipped byte must be found before the import."""
    digest, content = next(legacy.sheet_contents())
    files.write_sheets(tmp_path, [(digest, content)])
    assert files.read_sheet(tmp_path, digest) == content
    (tmp_path / f"{digest}.csv.gz").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ValueError, match="damaged"):
        files.read_sheet(tmp_path, digest)


def test_repeated_write_changes_nothing(tmp_path: Path) -> None:
    """A batch that a kill makes come twice must leave the same target."""
    with Target(str(tmp_path / "target.sqlite")) as target:
        target.create_tables()
        rows = [("AA", "American Airlines Inc."), ("UA", "United")]
        target.write("carriers", rows)
        once = target.digest()
        target.write("carriers", rows)
        assert target.digest() == once
        target.write("carriers", [("UA", "United Air Lines Inc.")])
        target.commit()
        assert target.digest() != once
        assert target.count("carriers") == 2
        assert {name for (name,) in target.query("select name from sqlite_master where type = 'table'")} == set(TABLES)
