"""What is known about a task while somebody looks at it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from towline.errors.declaration import DeclarationError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from towline.modules.doors import Attempt

Params = TypeVar("Params")


class TaskFacts:
    """What is known about a task: both contexts have it, and a condition that is a function gets it.

    Made once per attempt, on the hot path: it holds the attempt and nothing else.
    """

    __slots__ = ("_attempt",)

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt

    @property
    def run_id(self) -> str:
        """The id of this doing of the plan; a resumed run has another one."""
        return self._attempt.run_id

    @property
    def task_id(self) -> str:
        """``module``, or ``module[key]`` of an expanded one."""
        return self._attempt.task_id

    @property
    def key(self) -> str | None:
        """The key of this task, ``None`` unless its module is expanded."""
        return self._attempt.key

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1, over the life of the plan."""
        return self._attempt.attempt

    @property
    def epoch(self) -> int:
        """The fencing number of the claim under which the task runs; grows with every claim."""
        return self._attempt.epoch

    @property
    def worker_id(self) -> str:
        """The node on which the task runs."""
        return self._attempt.worker_id

    @property
    def workdir(self) -> Path:
        """The folder that the task's files are relative to."""
        return self._attempt.workdir

    @property
    def matrix(self) -> Mapping[str, Any]:
        """The value of each axis for this task; empty without a matrix."""
        return self._attempt.matrix

    @property
    def item(self) -> Any:
        """The item of this task; ``None`` without ``each``."""
        return self._attempt.item

    def params(self, kind: type[Params], /) -> Params:
        """Give the parameters of the run, read only, which must be of this kind (MOD-22).

        Raises:
            DeclarationError: The pipeline has parameters of another type, or none.
        """
        params = self._attempt.params
        if not isinstance(params, kind):
            found = "declares no params" if params is None else f"has params of type {type(params).__name__}"
            allowed = f"the pipeline {found}; pass params={kind.__name__} to it, or ask for its own type"
            raise DeclarationError(self._attempt.module, "ctx.params", kind.__name__, allowed)
        return params
