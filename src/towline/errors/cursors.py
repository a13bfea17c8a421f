"""Errors of cursors, steps and id maps (``planning.md`` section 10)."""

from __future__ import annotations

from towline.errors.coordination import LeaseLostError
from towline.errors.root import TowlineError


class CursorOrderError(TowlineError):
    """Keys do not rise, or a write would move the cursor backwards (CUR-02, CUR-06)."""

    def __init__(self, task_id: str, previous: str, key: str, detail: str = "") -> None:
        super().__init__(task_id, previous, key, detail)
        self.task_id, self.previous, self.key, self.detail = task_id, previous, key, detail

    def __str__(self) -> str:
        detail = f" ({self.detail})" if self.detail else ""
        return (
            f"cursor of {self.task_id!r}: key {self.key} does not come after {self.previous}{detail}. Sort the source "
            'by the key; keys are compared by value, so pad numbers in text ("09" before "10").'
        )


class CursorStageError(TowlineError):
    """A stage is not among those that the body named (CUR-07)."""

    def __init__(self, task_id: str, stage: str, known: tuple[str, ...]) -> None:
        super().__init__(task_id, stage, known)
        self.task_id, self.stage, self.known = task_id, stage, known

    def __str__(self) -> str:
        return (
            f"cursor of {self.task_id!r} has stage {self.stage!r}, the body knows {', '.join(self.known)}. "
            "Restore the stage, or start anew with --fresh."
        )


class CursorCorruptError(TowlineError):
    """The file of a cursor or step cannot be read (CUR-13)."""

    def __init__(self, task_id: str, file: str, detail: str) -> None:
        super().__init__(task_id, file, detail)
        self.task_id, self.file, self.detail = task_id, file, detail

    def __str__(self) -> str:
        then = "that step runs again" if self.file.startswith("steps/") else "the task starts at its first item"
        return f"{self.file} of {self.task_id!r} cannot be used: {self.detail}. Restore it, or remove it: then {then}."


class TargetPlanError(LeaseLostError):
    """The target keeps a place under a plan that is newer than this run's, or of another state (CUR-12)."""

    def __init__(self, task_id: str, scope: str, plan_id: str, stored_plan_id: str) -> None:
        TowlineError.__init__(self, task_id, scope, plan_id, stored_plan_id)
        self.task_id, self.scope, self.plan_id, self.stored_plan_id = task_id, scope, plan_id, stored_plan_id

    def __str__(self) -> str:
        return (
            f"table towline_cursor of the target keeps the place of {self.task_id!r} under plan {self.stored_plan_id}, "
            f"this run's plan is {self.plan_id}: a later run has been there, or the state that it belongs to was "
            f"deleted. In that case DELETE FROM towline_cursor WHERE scope = '{self.scope}': every item is then done "
            "again."
        )


class QueryChangedError(TowlineError):
    """The source is read with another query than the one the cursor belongs to (CUR-17)."""

    def __init__(self, task_id: str, stored_digest: str, digest: str) -> None:
        super().__init__(task_id, stored_digest, digest)
        self.task_id, self.stored_digest, self.digest = task_id, stored_digest, digest

    def __str__(self) -> str:
        return (
            f"the cursor of {self.task_id!r} was made with query {self.stored_digest}, the body now has {self.digest}: "
            'its place means nothing there. Set the query back, or pass on_query_change="restart".'
        )


class StepValueError(TowlineError):
    """The value of a step cannot be stored, or was not set (CUR-16)."""

    def __init__(self, task_id: str, step: str, type_name: str, detail: str) -> None:
        super().__init__(task_id, step, type_name, detail)
        self.task_id, self.step, self.type_name, self.detail = task_id, step, type_name, detail

    def __str__(self) -> str:
        return (
            f"step {self.step!r} of {self.task_id!r}: a value of type {self.type_name} cannot be kept: {self.detail}. "
            "Return something that JSON can hold by its type."
        )


class StepReusedError(TowlineError):
    """One attempt used a step name twice (CUR-16)."""

    def __init__(self, task_id: str, step: str) -> None:
        super().__init__(task_id, step)
        self.task_id, self.step = task_id, step

    def __str__(self) -> str:
        return f"step {self.step!r} of {self.task_id!r} was used twice in one attempt. Give each step its own name."


class IdMapConflictError(TowlineError):
    """A source already has another target (CUR-20). ``None``: it is recorded as skipped."""

    def __init__(self, source: str, stored: str | None, wanted: str | None) -> None:
        super().__init__(source, stored, wanted)
        self.source, self.stored, self.wanted = source, stored, wanted

    def __str__(self) -> str:
        return (
            f"id map: {self.source!r} is {_shown(self.stored)} and cannot become {_shown(self.wanted)}. "
            "Clean up the second record in the target, then go on."
        )


def _shown(target: str | None) -> str:
    return "skipped" if target is None else f"mapped to {target!r}"
