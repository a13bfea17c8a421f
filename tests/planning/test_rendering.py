"""A plan as people and other programs see it."""

from __future__ import annotations

import json
import re

import pytest

from planning.declared import document, edge, planned, spec
from towline.modules.outcomes import Reason
from towline.planning.plan import Plan, PlannedTask, shown_plan
from towline.testing import clause

LONG = "export.flights_of_the_whole_year_with_a_name_that_goes_on_and_on"


def release() -> Plan:
    build = spec("build", matrix={"python": ["3.11", "3.12"]}, phase="make")
    plan = planned(
        spec("publish", edge(build), phase="ship"),
        spec("lint", phase="make"),
        spec(LONG, phase="ship"),
        spec("notify"),
        phases=("make", "ship"),
    )
    return shown_plan(
        "release",
        plan.tasks,
        phases=plan.phases,
        decisions={"build[3.11]": "kept", "build[3.12]": "run", "lint": "skip", "publish": "unknown", LONG: "run"},
        reasons={"lint": Reason(code="condition", text="env('CI') does not hold")},
        estimates={"build": 42.4, "publish": 3725.0, "build[3.11]": 0.25},
    )


@clause("PLAN-11")
@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_table_shows_tier_task_decision_and_estimate_within_its_width(width: int) -> None:
    """It is read in a terminal beside an editor, before anyone dares to press Enter."""
    text = release().to_text(width=width)
    lines = text.splitlines()

    assert max(map(len, lines)) <= width
    assert text.replace("\n", " ").startswith(
        "release: 6 tasks in 2 tiers (1 kept, 1 pending, 2 run, 1 skip, 1 unknown)"
    )
    assert "".join(LONG.split()) in re.sub(r"\s", "", text)
    for words in (r"0  build\[3.11\] +kept +250 ms", r"0  build\[3.12\] +run +42 s", r"publish +unknown +1h02m"):
        assert re.search(words, text), words
    assert "env('CI') does not hold" in text
    phases = [line for line in lines if line.startswith("-- ")]
    assert [line.strip("- ") for line in phases] == ["make", "ship"]


def test_a_large_matrix_is_one_line() -> None:
    """Ten thousand lines would hide the one that matters."""
    many = spec("sheet", matrix={"n": [f"{n:04}" for n in range(1_000)]})
    lines = shown_plan("p", planned(spec("after", edge(many)), many).tasks).to_text().splitlines()
    assert len(lines) == 5
    assert "sheet[0000 .. 0999] (1,000 tasks)" in lines[3]


def test_json_holds_every_task() -> None:
    """Programs read this form; what is not known is absent."""
    read = json.loads(release().to_text("json"))
    assert read["schema"] == 1
    assert [task["id"] for task in read["tasks"]][:2] == ["build[3.11]", "build[3.12]"]
    lint = next(task for task in read["tasks"] if task["id"] == "lint")
    assert lint["reason"]["code"] == "condition"
    assert "estimate_s" not in lint


def test_graphs_have_a_node_per_task_and_an_arrow_per_dependency() -> None:
    """They go into reviews and wikis."""
    mermaid, dot = release().to_text("mermaid"), release().to_text("dot")
    assert mermaid.count("-->") == dot.count(" -> ") == 2
    assert mermaid.count('["') == 6 + 2
    assert dot.count("[label=") == 6
    assert dot.count("subgraph cluster_") == mermaid.count("subgraph") == 2


def test_hostile_names_are_shown_escaped() -> None:
    """A name may come from a file name, and a terminal or a renderer must not obey it."""
    task = PlannedTask(id='a["]\x1b[31m\u202e</script>\n', module="a")
    plan = Plan(pipeline="p", tasks=(task,))
    for form in ("text", "mermaid", "dot"):
        text = plan.to_text(form)  # type: ignore[arg-type]
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert "</script>" not in plan.to_text("mermaid")
    assert '\\"]' in plan.to_text("dot")


def test_an_empty_plan_and_an_unknown_format() -> None:
    """Both are asked for by accident."""
    plan = Plan(pipeline="p", tasks=())
    assert plan.to_text() == "p: no tasks\n"
    with pytest.raises(ValueError, match="text, json, mermaid or dot"):
        plan.to_text("xml")  # type: ignore[arg-type]


def test_the_shown_plan_is_a_copy() -> None:
    """Observers keep it while the run goes on."""
    rows = document(planned(spec("a"))).tasks
    plan = shown_plan("p", rows)
    rows[0].state = "running"
    assert plan.tasks[0].state == "pending"
    with pytest.raises(AttributeError):
        plan.tasks[0].state = "failed"  # type: ignore[misc]
