"""The journal as bytes: its format, and every way in which it can be cut or damaged."""

from __future__ import annotations

import zlib

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.envs import PLAN_ID, record, snapshot
from towline.errors import PlanCorruptError, SchemaTooNewError
from towline.state.journal import JournalHeader, header_line, journal_line, read_journal
from towline.state.snapshot import Loaded, join
from towline.testing import clause

HEADER = JournalHeader(plan_id=PLAN_ID, generation=3, owner_epoch=2)
LINES = [header_line(HEADER), *(journal_line([record(seq), record(seq + 1)]) for seq in (1, 3, 5))]
JOURNAL = b"".join(LINES)
SNAPSHOT = snapshot(generation=3)


def seqs(loaded: Loaded) -> list[int]:
    return [msgspec.json.decode(raw)["seq"] for raw in loaded.records]


def test_the_line_format_is_the_documented_one() -> None:
    """Other tools read the journal; an old one must stay readable."""
    body = b'{"schema":1,"kind":"header","plan_id":"00000001-be27d441","generation":3,"owner_epoch":2}'
    assert header_line(HEADER) == b"%08x " % zlib.crc32(body) + body + b"\n"
    line = journal_line([record(120, state="running", epoch=2, worker="w-2", attempts=1)])
    crc, _, body = line[:-1].partition(b" ")
    assert int(crc, 16) == zlib.crc32(body)
    assert msgspec.json.decode(body)["records"][0] == {
        "kind": "state", "seq": 120, "at": "2026-03-01T10:00:01.004Z", "task": "import.planes", "state": "running",
        "epoch": 2, "worker": "w-2", "attempts": 1,
    }  # fmt: skip


@clause("PLAN-20", "PLAN-21", "PLAN-22")
def test_a_cut_at_any_byte_leaves_the_whole_lines_before_it() -> None:
    """A kill inside a write leaves a prefix; neither a record more nor one less may count."""
    ends = [sum(map(len, LINES[: count + 1])) for count in range(len(LINES))]
    for cut in range(len(JOURNAL) + 1):
        loaded = join(SNAPSHOT, JOURNAL[:cut], "root")
        whole = sum(end <= cut for end in ends)
        assert seqs(loaded) == list(range(1, 2 * max(0, whole - 1) + 1))
        assert loaded.dropped_tail == cut - (ends[whole - 1] if whole else 0)


@clause("PLAN-20", "PLAN-21", "PLAN-22")
def test_a_flip_of_any_byte_is_found() -> None:
    """Damage before the last line is refused; in the last line it drops that line, never half of it."""
    last_two = sum(map(len, LINES[:-2]))
    for place in range(len(JOURNAL)):
        for bit in (0x01, 0x20, 0x80):
            damaged = bytearray(JOURNAL)
            damaged[place] ^= bit
            try:
                loaded = join(SNAPSHOT, bytes(damaged), "root")
            except PlanCorruptError as error:
                assert place < len(JOURNAL) - len(LINES[-1])
                assert error.file == "root/plan.journal"  # noqa: PT017 - likewise
                continue
            assert loaded.dropped_tail
            assert seqs(loaded) in ([1, 2, 3, 4], [1, 2])
            assert place >= last_two, "only the last line, or the line feed before it, may be dropped"


@clause("PLAN-22")
@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("bad line before the last", LINES[0] + b"zzz\n" + LINES[1], "checksum"),
        ("torn header before others", LINES[0][:-9] + b"\n" + LINES[1], "checksum"),
        ("records without header", LINES[1] + LINES[2], "no header"),
        ("two headers", LINES[0] + LINES[0], "no records"),
        ("gap between lines", LINES[0] + LINES[1] + LINES[3], "seq 5 follows 2"),
        ("gap in a line", LINES[0] + journal_line([record(1), record(3)]), "seq 3 follows 1"),
        ("first after a gap", LINES[0] + LINES[2], "first record is 3"),
        ("no number", LINES[0] + journal_line([{"kind": "state"}]), "seq"),
        ("number as text", LINES[0] + journal_line([{"kind": "state", "seq": "1"}]), "seq"),
    ],
)
def test_what_no_kill_can_leave_is_refused(name: str, data: bytes, words: str) -> None:
    """Somebody edited it, or the disk is bad: an operator must decide, not Towline."""
    with pytest.raises(PlanCorruptError, match=words) as refused:
        join(SNAPSHOT, data, "root")
    assert refused.value.file == "root/plan.journal"
    assert refused.value.offset >= 0
    assert "--fresh" in str(refused.value)


@clause("PLAN-22")
@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"\xff\xfe{}", b'{"schema":1}', SNAPSHOT[:-1], SNAPSHOT + b"x", b'{"schema":"1"}', b"NaN",
     SNAPSHOT.replace(b'"generation":3', b'"generation":NaN'), SNAPSHOT.replace(b'"schema":1', b'"schema":0')],
)  # fmt: skip
def test_an_unreadable_snapshot_is_refused(data: bytes) -> None:
    """An empty or cut plan is never taken for "nothing there" and rebuilt."""
    with pytest.raises(PlanCorruptError) as refused:
        join(data, JOURNAL, "root")
    assert refused.value.file == "root/plan.json"


@clause("PLAN-22")
def test_a_journal_without_or_ahead_of_its_snapshot_is_refused() -> None:
    """The snapshot is written first, so neither can come from a kill."""
    with pytest.raises(PlanCorruptError, match="missing"):
        join(None, JOURNAL, "root")
    with pytest.raises(PlanCorruptError, match="generation 3"):
        join(snapshot(generation=2), JOURNAL, "root")
    with pytest.raises(PlanCorruptError, match="generation 3"):
        join(snapshot(generation=9, plan_id="00000000-ffffffff"), JOURNAL, "root")
    assert join(None, None, "root") == Loaded()


@clause("PLAN-22")
@pytest.mark.parametrize("data", [None, b"", LINES[0][:1], LINES[0][:-1], b"\x00" * 40])
def test_a_journal_without_a_whole_header_has_no_records(data: bytes | None) -> None:
    """A kill right after the snapshot."""
    loaded = join(SNAPSHOT, data, "root")
    assert loaded.records == []
    assert loaded.snapshot == SNAPSHOT


@clause("PLAN-24")
def test_an_older_journal_counts_up_to_what_the_snapshot_holds() -> None:
    """A kill between a new snapshot and its journal leaves the old journal beside it."""
    assert join(snapshot(generation=4, applied_seq=6), JOURNAL, "root").records == []
    with pytest.raises(PlanCorruptError, match="beyond seq 5"):
        join(snapshot(generation=4, applied_seq=5), JOURNAL, "root")
    later = Loaded()
    later = join(snapshot(generation=4, applied_seq=6, plan_id="00000002-00000000"), JOURNAL, "root")
    assert later.records == [], "the journal of an older plan says nothing about a new one"
    assert join(snapshot(generation=1, applied_seq=0, plan_id="00000002-00000000"), JOURNAL, "root").records == []


@clause("PLAN-26")
def test_a_newer_schema_is_refused_with_both_numbers() -> None:
    """An old Towline must not write over what it does not understand."""
    with pytest.raises(SchemaTooNewError) as refused:
        join(SNAPSHOT.replace(b'"schema":1', b'"schema":7'), JOURNAL, "root")
    assert (refused.value.found, refused.value.known) == (7, 1)
    newer = header_line(JournalHeader(schema=2, plan_id=PLAN_ID, generation=3, owner_epoch=2))
    with pytest.raises(SchemaTooNewError, match=r"plan\.journal"):
        join(SNAPSHOT, newer, "root")


@given(groups=st.lists(st.integers(1, 4), max_size=8), cut=st.integers(0, 200))
@settings(max_examples=60, deadline=None)
def test_any_grouping_reads_back_in_order(groups: list[int], cut: int) -> None:
    """How records are grouped into lines depends on timing and must not matter."""
    data, seq = header_line(HEADER), 0
    for group in groups:
        data += journal_line([record(seq + number + 1) for number in range(group)])
        seq += group
    assert read_journal(data, "f").seqs == list(range(1, seq + 1))
    shorter = read_journal(data[: len(data) - min(cut, len(data))], "f").seqs
    assert shorter == list(range(1, len(shorter) + 1))
