"""The plan on disk and its journal: what is written is read back, and damage is named."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planning.declared import AT, document, edge, planned, spec
from towline.errors.state import PlanCorruptError, SchemaTooNewError
from towline.planning.document import encode_document, encode_slices, journal_limit
from towline.planning.live import LivePlan, apply
from towline.planning.loading import decode_document, replay
from towline.planning.records import (
    ExpandRecord,
    JournalRecord,
    PlanDocument,
    PlannedTask,
    ProgressRecord,
    ReconcileRecord,
    RunRecord,
    StateRecord,
    TaskError,
    TaskState,
)
from towline.testing import clause

NAMES = ("a", "b", "c", "pack")
STATES: tuple[TaskState, ...] = (
    "queued",
    "running",
    "succeeded",
    "failed",
    "timed_out",
    "skipped",
    "cancelled",
    "pending",
)


def made() -> PlanDocument:
    """A plan with a value chain, an order edge and an `each` module."""
    a = spec("a")
    b = spec("b", edge(a), at_most_once=True)
    c = spec("c", edge(b, "order"))
    return document(planned(c, spec("pack", edge(b, "order"), each=edge(a))))


def copy_of(plan: PlanDocument) -> PlanDocument:
    return decode_document(encode_document(plan))


def test_a_document_is_read_as_it_was_written_and_states_its_schema() -> None:
    """The next process, and other programs, know the plan only from these bytes."""
    plan = made()
    plan.tasks[1].error = TaskError(type="ValueError", text="no\nsuch", where="pipe.py:3")
    data = encode_document(plan)

    assert decode_document(data) == plan
    raw = msgspec.json.decode(data)
    assert raw["schema"] == 1
    assert list(raw["tasks"][0]) == ["id", "module", "own_digest", "closure_digest", "code_digest"]


@clause("PLAN-23")
def test_a_large_plan_is_encoded_in_slices_that_add_up() -> None:
    """One encode of 100,000 tasks would hold the loop, and with it every heartbeat."""
    plan = document(planned(*(spec(f"t{n}") for n in range(1_203))))
    slices = list(encode_slices(plan, 500))
    assert len(slices) == 5
    assert decode_document(b"".join(slices)) == plan
    assert decode_document(encode_document(document(planned()))).tasks == []


@clause("PLAN-23")
def test_compaction_comes_when_the_journal_outgrows_the_plan() -> None:
    """Earlier, n transitions cost more than O(n) bytes; later, a start reads a journal without end."""
    assert journal_limit(10) == 1_000
    assert journal_limit(5_000) == 15_000


def broken(**changes: object) -> bytes:
    raw = msgspec.json.decode(encode_document(made()))
    for path, value in changes.items():
        target, *rest = path.split("__")
        if rest:
            raw["tasks"][int(target[1:])][rest[0]] = value
        else:
            raw[target] = value
    return msgspec.json.encode(raw)


@clause("PLAN-22")
@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "it is empty"),
        (encode_document(made())[:-40], "truncated"),
        (b'{"schema": 1, "pipeline": "\xff"}', "UTF-8|utf-8"),
        (b'{"schema": 1, "x": ' + b"[" * 100_000, "recursion|truncated"),
        (broken(t1__state="lost"), r"tasks\[1\].state"),
        (broken(t1__id="a"), r"tasks\[1\].id: 'a' is the id of tasks\[0\]"),
        (broken(t1__depends_on=["nowhere"]), r"tasks\[1\].depends_on\[0\]: there is no task 'nowhere'"),
        (broken(t1__edges={"c": "order"}), r"tasks\[1\].edges"),
        (broken(t2__parent="nowhere"), r"tasks\[2\].parent"),
        (broken(t1__attempts="2"), r"tasks\[1\].attempts: Expected `int`, got `str`"),
        (broken(t1__attempts=2**53 + 1), r"tasks\[1\].attempts"),
        (broken(t1__attempts=-1), r"tasks\[1\].attempts"),
        (encode_document(made()).replace(b'"tier":1', b'"tier":NaN'), "malformed"),
        (broken(schema=0), "schema"),
        (broken(tasks=None), "tasks"),
    ],
)
def test_a_damaged_plan_is_refused_with_the_path_of_the_damage(data: bytes, words: str) -> None:
    """Silently rebuilt, it would run a migration again; unnamed, nobody could repair it."""
    with pytest.raises(PlanCorruptError, match=words) as caught:
        decode_document(data, "root/plan.json")
    assert caught.value.file == "root/plan.json"
    assert caught.value.exit_code == 4


@clause("PLAN-26")
def test_a_newer_schema_is_refused_as_newer_even_if_it_does_not_fit() -> None:
    """ "Damaged" would send the operator to the backups; "use the newer Towline" is the answer."""
    for data in (broken(schema=2), broken(schema=2, tasks="in another form")):
        with pytest.raises(SchemaTooNewError, match="schema 2"):
            decode_document(data)


@st.composite
def records(draw: st.DrawFn) -> list[JournalRecord]:
    """Draw a journal that fits the plan of `made`."""
    drawn: list[JournalRecord] = []
    names = list(NAMES)
    for seq in range(1, draw(st.integers(1, 40)) + 1):
        kind = draw(st.sampled_from(["state"] * 5 + ["progress", "run", "reconcile", "expand"]))
        name = draw(st.sampled_from(names))
        count = draw(st.one_of(st.none(), st.integers(0, 9)))
        if kind == "expand" and "pack[x]" not in names:
            keys = ("x", "y")
            names += [f"pack[{key}]" for key in keys]
            drawn.append(ExpandRecord(seq=seq, join="pack", source_digest="sha256:s", keys=keys, items=("1", "2")))
        elif kind == "progress":
            drawn.append(ProgressRecord(seq=seq, at=f"t{seq}", task=name, done=seq, total=count))
        elif kind == "run":
            drawn.append(RunRecord(seq=seq, at=f"t{seq}", run_id="r-2", run_state="cancelling"))
        elif kind == "reconcile":
            drawn.append(ReconcileRecord(seq=seq, at=f"t{seq}", kept=("a",), removed=("gone",)))
        else:
            drawn.append(
                StateRecord(
                    seq=seq,
                    at=f"t{seq}",
                    task=name,
                    state=draw(st.sampled_from(STATES)),
                    reason=draw(st.sampled_from([None, "error", "blocked"])),
                    error=draw(st.sampled_from([None, TaskError(type="E", text="t")])),
                    epoch=count,
                    attempts=count,
                    done=count,
                    findings=draw(st.sampled_from([None, {}, {"warning": 2}])),
                    result_digest=draw(st.sampled_from([None, "sha256:r"])),
                    ignored=draw(st.booleans()),
                )
            )
    return drawn


@clause("PLAN-19")
@settings(max_examples=80, deadline=None)
@given(journal=records(), cut=st.integers(0, 40))
def test_replay_of_a_journal_gives_the_plan_that_was_live(journal: list[JournalRecord], cut: int) -> None:
    """A resume that saw other states than the run before would run the wrong tasks."""
    live = LivePlan(made())
    loaded = LivePlan(made())
    for number, record in enumerate(journal):
        if number == cut:  # a snapshot in the middle
            loaded = LivePlan(copy_of(live.snapshot()))
        apply(live, record)

    later = [record for record in journal if record.seq > loaded.document.applied_seq]
    replay(loaded, [msgspec.json.encode(record) for record in later])

    assert loaded.document == live.document
    assert loaded.index == live.index


@clause("PLAN-22")
@pytest.mark.parametrize(
    ("journal", "words"),
    [
        ([StateRecord(seq=2, at=AT, task="a", state="running")], "record 2 stands where 1 was expected"),
        ([StateRecord(seq=1, at=AT, task="gone", state="running")], "record 1 does not fit task 'gone'"),
        ([ExpandRecord(seq=1, join="a", source_digest="s", keys=("x",), items=("1",))], "does not fit task 'a'"),
        ([ExpandRecord(seq=1, join="pack", source_digest="s", keys=("x", "x"), items=("1", "2"))], "'pack'"),
        ([{"seq": 1, "kind": "state", "at": AT, "task": "a", "state": "lost"}], "record 1: state"),
        ([{"seq": 1, "kind": "later"}], "record 1"),
    ],
)
def test_a_journal_that_does_not_fit_is_refused(journal: list[object], words: str) -> None:
    """Applied half-way it would be a mixture of two plans."""
    with pytest.raises(PlanCorruptError, match=words):
        replay(LivePlan(made()), [msgspec.json.encode(record) for record in journal])


def state(seq: int, name: str, to: TaskState, **more: object) -> StateRecord:
    return StateRecord(seq=seq, at=f"t{seq}", task=name, state=to, **more)  # type: ignore[arg-type]


def test_reason_error_and_moments_belong_to_a_state_and_counts_stay() -> None:
    """A row that kept the error of an earlier attempt beside `succeeded` would be a lie."""
    plan = LivePlan(made())
    apply(plan, state(1, "a", "running", epoch=1, attempts=1, worker="w-1"))
    apply(plan, ProgressRecord(seq=2, at="t2", task="a", done=5, total=9))
    (row,) = apply(plan, state(3, "a", "failed", reason="error", error=TaskError(type="E", text="t")))
    assert (row.reason, row.error is not None, row.started_at, row.finished_at) == ("error", True, "t1", "t3")

    apply(plan, state(4, "a", "running", attempts=2))
    assert (row.started_at, row.finished_at) == ("t4", None)
    apply(plan, state(5, "a", "succeeded", result_digest="sha256:r", result_at=7))

    assert (row.reason, row.error, row.started_at, row.finished_at) == (None, None, "t4", "t5")
    assert (row.attempts, row.epoch, row.worker, row.done, row.total, row.checkpoint_at) == (2, 1, "w-1", 5, 9, "t2")
    assert (row.result_digest, row.result_at) == ("sha256:r", 7)
    assert plan.document.applied_seq == 5

    apply(plan, state(6, "a", "pending", findings={"blocking": 1}))
    assert row.findings == {"blocking": 1}
    apply(plan, state(7, "a", "running", findings={}))
    assert row.findings is None  # an empty count clears, an absent one leaves


@clause("PLAN-28")
def test_no_record_has_room_for_a_value() -> None:
    """Plan and journal are read by whoever may look; results and parameters may be confidential."""
    fields = {
        name for kind in (PlannedTask, StateRecord, ExpandRecord, PlanDocument) for name in kind.__struct_fields__
    }
    assert not fields & {"value", "result", "params", "inputs", "arguments", "item_value"}
