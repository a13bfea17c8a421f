"""The first table of planning.md 4.3, row by row: what a start does with what it finds."""

from __future__ import annotations

from typing import Any

import pytest

from planning.declared import document, planned, spec
from towline.errors.coordination import ProgramMismatchError, RunIdUsedError
from towline.errors.planning import OtherProgramError, ParamsChangedError, PlanMissingError, UnfinishedPlanError
from towline.errors.root import TowlineError
from towline.errors.state import PlanCorruptError, PlanOwnedError, SchemaTooNewError
from towline.planning.deciding import Decision, Found, ResumeFlag, Wanted, decide
from towline.planning.records import PlanDocument, RunStatus
from towline.testing import clause

OWNED = PlanOwnedError("root", "m-1", "r-1", "build-4", 4112, "2026-03-01T10:00:00.000Z")
COLUMNS: tuple[ResumeFlag, ...] = ("resume", None, "fresh")


def plan(
    run_state: RunStatus = "failed", states: tuple[str, str] = ("succeeded", "failed"), **more: Any
) -> PlanDocument:
    built = planned(spec("a"), spec("b"), program="flights/main", params={"origin": "EWR"})
    made = document(built, run_state=run_state, **more)
    for task, state in zip(made.tasks, states, strict=True):
        task.state = state  # type: ignore[assignment]
    return made


def wanted(flag: ResumeFlag = None, **more: Any) -> Wanted:
    found = plan()
    fields: dict[str, Any] = {
        "program": found.program,
        "run_id": "r-2",
        "params_digest": found.params_digest,
        "param_digests": found.param_digests,
        "graph_digest": found.graph_digest,
    }
    return Wanted(flag=flag, **(fields | more))


def outcome(found: Found, want: Wanted) -> tuple[str, bool, bool] | type[TowlineError]:
    """The decision as the table writes it: action, archive, remove; or the error."""
    try:
        decision = decide(found, want)
    except TowlineError as error:
        return type(error)
    return decision.action, decision.archive, decision.remove


NEW, REPLACE, REMOVE = ("build", False, False), ("build", True, True), ("build", False, True)
GO_ON, RECONCILE, ADOPT, NOTHING = (
    ("resume", False, False),
    ("reconcile", False, False),
    ("adopt", False, False),
    ("nothing", False, False),
)
OTHER_PARAMS = {"params_digest": "sha256:other", "param_digests": {"origin": "sha256:other"}}
DONE = ("succeeded", "succeeded")

TABLE: list[tuple[str, dict[str, Any], dict[str, Any], tuple[object, object, object]]] = [
    ("a living owner", {"owned": OWNED, "plan": plan()}, {}, (PlanOwnedError,) * 3),
    ("nothing", {}, {}, (NEW, NEW, NEW)),
    ("cursors without plan", {"documents": 3}, {}, (PlanMissingError, PlanMissingError, REMOVE)),
    ("unreadable", {"damage": PlanCorruptError("plan.json", "cut")}, {}, (PlanCorruptError, PlanCorruptError, REPLACE)),
    ("newer schema", {"damage": SchemaTooNewError("plan.json", 2, 1)}, {}, (SchemaTooNewError,) * 3),
    ("torn last line", {"plan": plan(), "torn": True}, {}, (GO_ON, REPLACE, REPLACE)),
    ("other program", {"plan": plan()}, {"program": "x/main"}, (OtherProgramError, OtherProgramError, REPLACE)),
    ("same run id, ended", {"plan": plan("failed")}, {"run_id": "r-1"}, (RunIdUsedError,) * 3),
    ("same run id, not ended", {"plan": plan("running")}, {"run_id": "r-1"}, (ADOPT, ADOPT, RunIdUsedError)),
    ("other parameters", {"plan": plan()}, OTHER_PARAMS, (ParamsChangedError, REPLACE, REPLACE)),
    ("other graph", {"plan": plan()}, {"graph_digest": "sha256:other"}, (RECONCILE, REPLACE, REPLACE)),
    ("same graph, failed", {"plan": plan()}, {}, (GO_ON, REPLACE, REPLACE)),
    ("same graph, work left", {"plan": plan("cancelled", ("succeeded", "pending"))}, {}, (GO_ON, REPLACE, REPLACE)),
    ("all final, none failed", {"plan": plan("succeeded", DONE)}, {}, (NOTHING, REPLACE, REPLACE)),
    ("all final, kept failure", {"plan": plan()}, {"failed": "keep"}, (NOTHING, REPLACE, REPLACE)),
    ("a result is gone", {"plan": plan("succeeded", DONE), "missing": frozenset({"a"})}, {}, (GO_ON, REPLACE, REPLACE)),
]  # fmt: skip


@clause("PLAN-30")
@pytest.mark.parametrize(("name", "found", "want", "columns"), TABLE, ids=[row[0] for row in TABLE])
def test_each_row_of_the_table(
    name: str, found: dict[str, Any], want: dict[str, Any], columns: tuple[object, object, object]
) -> None:
    """What a start does with yesterday's state is the promise that users rely on most."""
    for flag, expected in zip(COLUMNS, columns, strict=True):
        assert outcome(Found(root="root", **found), wanted(flag, **want)) == expected, flag


@clause("PLAN-30")
@pytest.mark.parametrize(
    ("option", "run_state", "states", "expected"),
    [
        *(
            ("crash", state, ("succeeded", "pending"), GO_ON)
            for state in ("planning", "running", "cancelling", "blocked")
        ),
        *(("crash", state, ("succeeded", "failed"), REPLACE) for state in ("failed", "cancelled")),
        ("auto", "failed", ("succeeded", "failed"), GO_ON),
        ("auto", "cancelled", ("succeeded", "cancelled"), GO_ON),
        ("auto", "succeeded", DONE, REPLACE),
        *(("never", state, ("succeeded", "pending"), REPLACE) for state in ("running", "failed")),
    ],
)
def test_what_a_start_without_flag_does_depends_on_how_the_last_run_ended(
    option: Any, run_state: Any, states: Any, expected: object
) -> None:
    """A run that was killed goes on by the same command; one that ended is followed by a new one."""
    found = Found(root="root", plan=plan(run_state, states))
    assert outcome(found, wanted(option=option)) == expected
    if option == "never":
        assert outcome(found, wanted("resume", option=option)) == GO_ON  # a flag wins over the option


@clause("PLAN-31")
def test_a_half_done_migration_is_not_thrown_away_by_a_forgotten_flag() -> None:
    """With cursors that have moved, starting over is a decision that only the operator can take."""
    found = Found(root="root", plan=plan(), cursors_moved=2)
    with pytest.raises(UnfinishedPlanError, match="1 task is left and 2 cursors have"):
        decide(found, wanted())
    assert outcome(found, wanted("fresh")) == REPLACE
    assert outcome(found, wanted("resume")) == GO_ON
    assert outcome(Found(root="root", plan=plan("succeeded", DONE), cursors_moved=2), wanted()) == REPLACE


def test_changed_parameters_are_named_without_their_values() -> None:
    """The name is what the operator sets back; a value could be confidential."""
    with pytest.raises(ParamsChangedError, match="origin") as caught:
        decide(Found(root="root", plan=plan()), wanted("resume", **OTHER_PARAMS))
    assert caught.value.changed == ("origin",)
    assert "EWR" not in str(caught.value)


@clause("PLAN-36")
def test_a_restarted_master_must_be_the_same_program_with_the_same_parameters() -> None:
    """Live leases of one graph cannot be adopted into another."""
    found = Found(root="root", plan=plan("running"))
    with pytest.raises(ProgramMismatchError):
        decide(found, wanted(run_id="r-1", graph_digest="sha256:other"))
    with pytest.raises(ParamsChangedError):
        decide(found, wanted(run_id="r-1", **OTHER_PARAMS))


def test_the_words_say_what_is_done_and_why() -> None:
    """They are the first line of the run: without it nobody knows why a task did not run."""

    def words(found: Found, want: Wanted) -> str:
        return decide(found, want).words

    killed = Found(root="root", plan=plan("running", ("succeeded", "pending")), torn=True)
    assert words(killed, wanted()) == (
        "resuming: run r-1 did not reach its end; 1 task left, 1 kept (an unfinished last write was dropped)"
    )
    assert words(Found(root="root"), wanted()) == "new plan: there is no earlier one"
    assert words(Found(root="root", plan=plan()), wanted()) == "new plan: run r-1 ended failed"
    assert decide(Found(root="root", plan=plan()), wanted("resume", failed="keep")).exit_code == 1
    assert isinstance(decide(killed, wanted()), Decision)
