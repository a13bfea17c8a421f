"""The report of a run: what ``run()`` returns and ``report.json`` keeps (REP-01, REP-02)."""

from __future__ import annotations

import os
import socket
import sys
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

import msgspec

from towline.artifacts.records import ArtifactRef
from towline.clock import moment
from towline.execution.offload_counts import OffloadCounts
from towline.modules.outcomes import Finding, Outcome
from towline.planning.records import TaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from towline.modules.kinds import ManyModule, OneModule

T = TypeVar("T")

EXIT_CODES = {"succeeded": 0, "failed": 1, "blocked": 3, "cancelled": 130}
CI_VARIABLES = {
    "github": ("GITHUB_ACTIONS", "GITHUB_SERVER_URL", "GITHUB_REF_NAME", "GITHUB_SHA"),
    "gitlab": ("GITLAB_CI", "CI_JOB_URL", "CI_COMMIT_REF_NAME", "CI_COMMIT_SHA"),
    "azure": ("TF_BUILD", "BUILD_BUILDURI", "BUILD_SOURCEBRANCHNAME", "BUILD_SOURCEVERSION"),
    "teamcity": ("TEAMCITY_VERSION", "BUILD_URL", "BRANCH_NAME", "BUILD_VCS_NUMBER"),
    "buildkite": ("BUILDKITE", "BUILDKITE_BUILD_URL", "BUILDKITE_BRANCH", "BUILDKITE_COMMIT"),
    "travis": ("TRAVIS", "TRAVIS_BUILD_WEB_URL", "TRAVIS_BRANCH", "TRAVIS_COMMIT"),
}


class FailureReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One failed task; the root failure stands first (RUN-49, REP-07)."""

    task: str
    state: TaskState
    error_type: str
    text: str
    traceback: str = ""
    attempt: int = 0
    worker_id: str | None = None
    notes: tuple[str, ...] = ()
    log_tail: tuple[str, ...] = ()
    """Of the root failure: the last 40 lines of its log."""


class TaskReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One task of the plan, as it stood at the end of the run. Moments are UTC text, durations seconds."""

    id: str
    module: str
    key: str | None = None
    state: TaskState
    reason: str | None = None
    reason_text: str | None = None
    blocked_by: str | None = None
    origin: Literal["executed", "cached", "kept"] | None = None
    gate: bool = False
    ignored: bool = False
    abandoned: bool = False
    attempts: int = 0
    worker_id: str | None = None
    duration_s: float | None = None
    previous_s: float | None = None
    started_at: str | None = None
    finished_at: str | None = None
    done: int | None = None
    total: int | None = None
    commands: int = 0
    offload: OffloadCounts | None = None
    artifacts: tuple[ArtifactRef, ...] = ()
    error: str | None = None


class PreviousRun(msgspec.Struct, frozen=True, kw_only=True):
    """The latest succeeded run of the same pipeline (REP-05)."""

    run_id: str
    duration_s: float


class RunReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, dict=True):
    """How a run ended. ``counts``: tasks by state, joins left out; ``metrics``: REP-02.

    ``path`` is where ``report.json`` lies, empty when it was not written. ``artifacts_at`` is the server that has the
    artifacts, without its password; empty when the folder of the state has them, or a store of the user's own.
    """

    schema: int = 1
    run_id: str
    pipeline: str
    program: str = ""
    params_digest: str = ""
    status: Literal["succeeded", "failed", "blocked", "cancelled"]
    exit_code: int
    started_at: str = ""
    finished_at: str = ""
    duration_s: float
    previous: PreviousRun | None = None
    host: str = ""
    python: str = ""
    ci: dict[str, str] | None = None
    counts: dict[str, int] = {}
    metrics: dict[str, float] = {}
    failures: tuple[FailureReport, ...] = ()
    findings: tuple[Finding, ...] = ()
    tasks: tuple[TaskReport, ...] = ()
    commands: int = 0
    warnings: tuple[str, ...] = ()
    path: str = ""
    artifacts_at: str = ""

    @overload
    def outcome_of(self, module: OneModule[T]) -> Outcome[T]: ...
    @overload
    def outcome_of(self, module: ManyModule[T]) -> list[Outcome[T]]: ...
    def outcome_of(self, module: Any) -> Any:
        """Give the outcome of a module of this run, or those of an expanded one in key order.

        Raises:
            LookupError: The report was read from disk, or the module is not in the plan.
        """
        find: Callable[[Any], Any] | None = self.__dict__.get("find")
        if find is None:
            raise LookupError(f"the report of {self.run_id} was read from disk: it has no values, see its tasks")
        return find(module)

    def __repr__(self) -> str:
        """Short: asyncio writes the result of its main task when it gives a signal handler back."""
        return f"<report of {self.run_id}: {self.status}>"

    def with_values(self, find: Callable[[Any], Any]) -> RunReport:
        """Let :meth:`outcome_of` find the outcomes of this process; they are no part of the document."""
        self.__dict__["find"] = find
        return self


def here() -> tuple[str, str, dict[str, str] | None]:
    """Return host name, Python version and what the CI system says of itself."""
    return socket.gethostname(), ".".join(map(str, sys.version_info[:3])), ci_facts(os.environ)


def ci_facts(environ: Mapping[str, str]) -> dict[str, str] | None:
    """Recognise a CI system by its variable and gather url, branch and commit."""
    for system, (flag, url, branch, commit) in CI_VARIABLES.items():
        if environ.get(flag):
            named = {"url": url, "branch": branch, "commit": commit}
            return {"system": system} | {name: environ[var] for name, var in named.items() if environ.get(var)}
    return None


def peak_and_mean(spans: Sequence[tuple[float, float]], duration_s: float) -> tuple[int, float]:
    """Return how many bodies ran at once at most, and on average over the run."""
    ends = sorted(end for _, end in spans)
    ended = peak = 0
    for begun, start in enumerate(sorted(start for start, _ in spans), 1):
        while ended < begun and ends[ended] <= start:
            ended += 1
        peak = max(peak, begun - ended)
    busy = sum(end - start for start, end in spans)
    return peak, busy / duration_s if duration_s > 0 else 0.0


def stamp(now: float | None) -> str | None:
    """Write a moment of an outcome, or nothing."""
    return None if now is None else moment(now)
