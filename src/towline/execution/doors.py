"""What a context can ask of the engine on this node (``modules.doors.Doors``)."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING, Any

from towline.clock import moment
from towline.errors.offload import OffloadUnavailableError
from towline.errors.planning import FindingError
from towline.errors.run import AttemptEndedError
from towline.execution.output import LOGGER

if TYPE_CHECKING:
    import concurrent.futures
    import logging
    from collections.abc import Awaitable, Callable, Mapping
    from contextlib import AbstractAsyncContextManager
    from os import PathLike
    from pathlib import Path

    from towline.artifacts.records import ArtifactRef
    from towline.clock import Clock
    from towline.execution.output import Output
    from towline.execution.surroundings import Surroundings
    from towline.execution.taskrun import TaskRun
    from towline.masking import Masker, Secret
    from towline.modules.doors import Attempt
    from towline.modules.outcomes import Finding
    from towline.state.cursors import CursorStore
    from towline.state.steps import StepStore

FINDINGS_LIMIT = 10_000
"""Findings kept per task; blocking ones are always kept (PLAN-54)."""

EVIDENCE_LIMIT = 4 * 1024
"""Characters of one value of a finding's evidence (RUN-60)."""

PROGRESS_INTERVAL_S = 0.5
"""Progress of one task is shown at most this often; the latest wins (EVT-06)."""


class NodeDoors:
    """The doors of one run on one node; every context of the run uses this object.

    ``runs`` finds the execution behind an attempt. Calls from body threads come in through
    :meth:`blocking` or are safe by themselves.
    """

    def __init__(
        self,
        *,
        runs: Mapping[str, TaskRun],
        output: Output,
        masker: Masker,
        cursors: CursorStore,
        steps: StepStore,
        show: Callable[[str, TaskRun, dict[str, Any]], None],
        checkpoint: Callable[[TaskRun, int, int | None], None],
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        plan_id: str,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._runs, self._output, self._masker = runs, output, masker
        self._cursors, self._steps, self._show, self._checkpoint = cursors, steps, show, checkpoint
        self._clock, self._loop, self._plan_id = clock, loop, plan_id
        self._environ = os.environ if environ is None else environ
        self._loop_thread = threading.get_ident()
        self.surroundings: Surroundings  # set by whoever composes both: each knows the other
        self.command_count = 0

    # -------------------------------------------------------------- standing of an attempt

    def _check(self, attempt: Attempt) -> TaskRun:
        """Let a call through only while its attempt is alive (RUN-23, RUN-47, RUN-48)."""
        if attempt.cancelled:
            raise asyncio.CancelledError(f"{attempt.task_id} was asked to end")
        run = self._runs.get(attempt.task_id)
        if attempt.ended or run is None:
            raise AttemptEndedError(attempt.task_id, attempt.attempt)
        return run

    def _on_loop(self, call: Callable[[], None]) -> None:
        if threading.get_ident() == self._loop_thread:
            call()
        else:
            self._loop.call_soon_threadsafe(call)

    # -------------------------------------------------------------- saying

    def log(self, attempt: Attempt) -> logging.Logger:
        """The logger of bodies: its records find their task by context."""
        return LOGGER

    def progress(self, attempt: Attempt, done: int, total: int | None) -> None:
        """Note how far the body is; shown at most twice a second."""
        run = self._check(attempt)
        if total is not None and done > total:
            LOGGER.warning("progress of %s: %d done of %d; the total is shown as unknown", run.row.id, done, total)
            total = None
        self._on_loop(lambda: self._show_progress(run, done, total))

    def _show_progress(self, run: TaskRun, done: int, total: int | None) -> None:
        run.row.done, run.row.total = done, total
        now = self._loop.time()
        if now >= run.progress_due_at:
            run.progress_due_at = now + PROGRESS_INTERVAL_S
            self._show("progress", run, {"done": done, "total": total})

    def finding(self, attempt: Attempt, finding: Finding) -> None:
        """Record a finding once per code and evidence; a blocking one needs a gate (PLAN-54, RUN-60)."""
        run = self._check(attempt)
        if finding.severity == "blocking" and not run.kind.spec.settings.gate:
            raise FindingError(run.row.id, finding.code)
        finding = self._bounded(finding)
        known = (finding.code, tuple(sorted(finding.evidence.items())))
        if known in run.finding_keys:
            return
        if len(run.findings) >= FINDINGS_LIMIT and finding.severity != "blocking":
            run.findings_dropped += 1
            return
        run.finding_keys.add(known)
        run.findings.append(finding)
        import msgspec

        self._on_loop(lambda: self._show("finding", run, msgspec.to_builtins(finding)))

    def _bounded(self, finding: Finding) -> Finding:
        import msgspec

        mask = self._masker.mask
        evidence = {name: mask(value)[:EVIDENCE_LIMIT] for name, value in finding.evidence.items()}
        return msgspec.structs.replace(finding, message=mask(finding.message), evidence=evidence)

    # -------------------------------------------------------------- secrets

    def secret(self, attempt: Attempt, name: str) -> Secret:
        """Read a secret of this node, and mask it from now on (SEC-01)."""
        self._check(attempt)
        return self._masker.secret(name, self._environ)

    def mask(self, attempt: Attempt, value: str) -> None:
        """Mask a value in everything shown or stored from now on."""
        self._check(attempt)
        self._masker.register(value)

    # -------------------------------------------------------------- commands, steps, cursors

    async def run(self, attempt: Attempt, argv: tuple[str | PathLike[str], ...], options: Mapping[str, Any]) -> Any:
        """Run a command in the task's folder; its output goes to the task's log (CMD)."""
        run = self._check(attempt)
        return await self.surroundings.run_command(run, argv, options)

    async def run_step(
        self, attempt: Attempt, name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Call once and remember over retries and resumes (CUR-14)."""
        run = self._check(attempt)
        steps = await self._steps_of(run)
        self._show("step", run, {"step": name, "state": "started"})
        value = await steps.once(name, fn, args, kwargs)
        self._show("step", run, {"step": name, "state": "done"})
        return value

    def open_step(self, attempt: Attempt, name: str, result: Any) -> AbstractAsyncContextManager[Any]:
        """Open a step whose body the caller writes (CUR-15)."""
        run = self._check(attempt)
        return self._steps.opened(lambda: self._steps_of(run), name, result)

    async def _steps_of(self, run: TaskRun) -> Any:
        if run.steps is None:
            run.steps = await self._steps.of_attempt(run.row.id, run.attempt.epoch, run.attempt.attempt)
        return run.steps

    async def open_cursor(self, attempt: Attempt, options: Mapping[str, Any]) -> Any:
        """Open the task's cursor where the last attempt left it (CUR-01)."""
        run = self._check(attempt)

        def notify(done: int, total: int | None, saved_at: float | None, next_at: float | None) -> None:
            self._on_loop(lambda: self._at_checkpoint(run, done, total, saved_at, next_at))

        return await self._cursors.open(
            run.row.id,
            epoch=attempt.epoch,
            plan_id=self._plan_id,
            notify=notify,
            check=lambda: self._check(attempt) and None,
            **options,
        )

    def _at_checkpoint(
        self, run: TaskRun, done: int, total: int | None, saved_at: float | None, next_at: float | None
    ) -> None:
        run.row.done, run.row.total = done, total
        if saved_at is not None:
            self._checkpoint(run, done, total)
        now = self._loop.time()
        if now >= run.progress_due_at:
            run.progress_due_at = now + PROGRESS_INTERVAL_S
            data: dict[str, Any] = {"done": done, "total": total}
            if saved_at is not None:
                data["last_checkpoint_at"] = moment(saved_at)
            if next_at is not None:
                data["next_checkpoint_at"] = moment(next_at)
            self._show("progress", run, data)

    # -------------------------------------------------------------- artifacts, offload

    async def put_artifact(self, attempt: Attempt, name: str, path: str | PathLike[str]) -> ArtifactRef:
        """Store a file or folder under a name (ART-12)."""
        return await self.surroundings.put_artifact(self._check(attempt), name, path)

    async def get_artifact(self, attempt: Attempt, reference: ArtifactRef, into: str | PathLike[str]) -> Path:
        """Restore an artifact into a folder of the task."""
        return await self.surroundings.get_artifact(self._check(attempt), reference, into)

    def find_artifacts(self, attempt: Attempt, module: str, name: str) -> ArtifactRef | list[ArtifactRef]:
        """Find the references of a declared dependency."""
        return self.surroundings.find_artifacts(self._check(attempt), module, name)

    def offload(self, attempt: Attempt) -> Any:
        """There is no offload on this node unless the composition root gave one."""
        self._check(attempt)
        raise OffloadUnavailableError(f"ctx.offload in {attempt.task_id}", 0.0, 0)

    # -------------------------------------------------------------- sync bodies

    def blocking(self, attempt: Attempt, call: Callable[[], Awaitable[Any]]) -> Any:
        """Run an async door for a body's thread; a stop of the task ends the wait (RUN-22)."""
        run = self._check(attempt)

        async def on_loop() -> Any:
            return await call()

        waiting: concurrent.futures.Future[Any] = asyncio.run_coroutine_threadsafe(on_loop(), self._loop)
        run.in_flight.add(waiting)
        try:
            return waiting.result()
        except BaseException as error:
            import concurrent.futures as futures

            if isinstance(error, futures.CancelledError):
                raise asyncio.CancelledError(f"{attempt.task_id} was asked to end") from None
            raise
        finally:
            run.in_flight.discard(waiting)
