"""Events of small runs, as the engine emits them, for tests of views."""

from __future__ import annotations

import io
from typing import Any

from towline.events.records import Event
from towline.execution.report import FailureReport, PreviousRun, RunReport, TaskReport


def at(second: float) -> str:
    """A moment of the morning of 1 March 2026."""
    whole, millis = divmod(round(second * 1000), 1000)
    return f"2026-03-01T10:{whole // 60:02}:{whole % 60:02}.{millis:03}Z"


class Scene:
    """Makes numbered events; ``tell`` is how a test writes what happened."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def tell(self, kind: str, second: float, task: str | None = None, attempt: int | None = None, **data: Any) -> Event:
        event = Event(n=len(self.events) + 1, at=at(second), kind=kind, task=task, attempt=attempt, data=data)
        self.events.append(event)
        return event

    def begin(self, *tasks: dict[str, Any]) -> Scene:
        self.tell("run_started", 0, pipeline="flights", program="flights/flights", plan_id="p", run_id="r-1")
        self.tell("plan", 0, part=1, parts=1, tasks=list(tasks))
        return self

    def running(self, second: float, task: str, attempt: int = 1) -> None:
        self.tell("task_state", second, task, attempt, **{"from": "pending", "to": "running"})

    def ended(self, second: float, task: str, state: str = "succeeded", **data: Any) -> None:
        self.tell("task_state", second, task, 1, **{"from": "running", "to": state, **data})

    def said(self, second: float, task: str | None, text: str) -> None:
        self.tell("output", second, task, 1, stream="stdout", text=text)


def planned(name: str, *needs: str, **more: Any) -> dict[str, Any]:
    """A task as the ``plan`` event shows it."""
    row = {"id": name, "module": name.partition("[")[0], "tier": 0, "state": "pending", "depends_on": needs}
    return row | {"attempts": 0, "epoch": 0} | more


def failure_error(text: str = "boom") -> dict[str, str]:
    """The error of a failed task in its event."""
    return {"type": "ValueError", "text": text}


class FakeClock:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return 1_772_359_200.0 + self.time  # 2026-03-01T10:00:00Z

    def monotonic(self) -> float:
        return self.time


class Pipe(io.StringIO):
    """A pipe that may be closed at the other end after so many writes, and may know few characters."""

    def __init__(self, *, encoding: str = "utf-8", breaks_after: int | None = None) -> None:
        super().__init__()
        self._encoding, self._left = encoding, breaks_after

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding

    def write(self, text: str) -> int:
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                raise BrokenPipeError
        text.encode(self._encoding)  # raises as a real stream would
        return super().write(text)


def report(*tasks: TaskReport, status: str = "succeeded", **more: Any) -> RunReport:
    """A report of a run of 12 seconds."""
    counts: dict[str, int] = {}
    for task in tasks:
        counts[task.state] = counts.get(task.state, 0) + 1
    fields: dict[str, Any] = {
        "run_id": "r-1",
        "pipeline": "flights",
        "status": status,
        "exit_code": 0 if status == "succeeded" else 1,
        "duration_s": 12.0,
        "counts": counts,
        "tasks": tasks,
    }
    return RunReport(**fields | more)


def done(name: str, duration_s: float = 1.0, **more: Any) -> TaskReport:
    """A task that succeeded."""
    fields: dict[str, Any] = {
        "id": name,
        "module": name,
        "state": "succeeded",
        "duration_s": duration_s,
        "origin": "executed",
    }
    return TaskReport(**fields | more)


def failed(name: str, text: str = "boom") -> tuple[TaskReport, FailureReport]:
    """A task that failed, and its failure."""
    task = TaskReport(id=name, module=name, state="failed", duration_s=2.0, attempts=1, error=f"ValueError: {text}")
    failure = FailureReport(
        task=name,
        state="failed",
        error_type="builtins.ValueError",
        text=text,
        traceback=(
            "Traceback (most recent call last):\n"
            '  File "/site-packages/towline/execution/attempts.py", line 1, in run\n    await body()\n'
            '  File "/home/me/flights.py", line 7, in build\n    raise ValueError("boom")\n'
        ),
        attempt=1,
        worker_id="w-2",
        log_tail=("read 812 rows", "row 813 has no airport"),
    )
    return task, failure


__all__ = ["FakeClock", "Pipe", "PreviousRun", "Scene", "at", "done", "failed", "failure_error", "planned", "report"]
