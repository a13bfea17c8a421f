"""What a context can ask of the engine on this node (``modules.doors.Doors``)."""

from __future__ import annotations

import asyncio
import os
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from towline.clock import moment
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
    from towline.state.cursor import Cursor, CursorProgress
    from towline.state.cursors import CursorStore
    from towline.state.steps import StepStore
    from towline.state.store import StateStore

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
        store: StateStore,
        scope: str,
        show: Callable[[str, TaskRun, dict[str, Any]], None],
        checkpoint: Callable[[TaskRun, int, int | None], None],
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        plan_id: str,
        environ: Mapping[str, str] | None = None,
        open_offload: Callable[[TaskRun], Any] | None = None,
    ) -> None:
        self._runs, self._output, self._masker = runs, output, masker
        self._store, self._scope, self._show, self._checkpoint = store, scope, show, checkpoint
        self._cursors: CursorStore | None = None
        self._clock, self._loop, self._plan_id = clock, loop, plan_id
        self._environ = os.environ if environ is None else environ
        self._open_offload = open_offload
        self._loop_thread = threading.get_ident()
        self.surroundings: Surroundings  # set by whoever composes both: each knows the other

    # -------------------------------------------------------------- standing of an attempt

    def _check(self, attempt: Attempt) -> TaskRun:
        """Let a call through only while its attempt is alive (RUN-23, RUN-47, RUN-48)."""
        run = self._runs.get(attempt.task_id)
        if attempt.cancelled:
            _refuse_without_lease(attempt, run)
            raise asyncio.CancelledError(f"{attempt.task_id} was asked to end")
        if attempt.ended or run is None:
            raise AttemptEndedError(attempt.task_id, attempt.attempt)
        return run

    def _check_ended(self, attempt: Attempt) -> None:
        """Let a write through although the attempt was asked to end, not after its end, nor without its lease (CUR-08)."""
        run = self._runs.get(attempt.task_id)
        if attempt.ended or run is None:
            raise AttemptEndedError(attempt.task_id, attempt.attempt)
        if attempt.cancelled:
            _refuse_without_lease(attempt, run)

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
            if not run.findings_dropped:
                LOGGER.warning("%s has more than %d findings: no more are kept", run.row.id, FINDINGS_LIMIT)
            run.findings_dropped += 1
            return
        run.finding_keys.add(known)
        run.found(finding)
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
        from towline.execution.step_values import step_codec
        from towline.modules.step_results import declared_result

        run = self._check(attempt)
        encode, decode = step_codec(declared_result(fn), attempt.workdir)
        self._show("step", run, {"step": name, "state": "started"})
        value = await self._steps_of(run).once(name, partial(fn, *args, **kwargs), encode=encode, decode=decode)
        self._show("step", run, {"step": name, "state": "done"})
        return value

    def open_step(self, attempt: Attempt, name: str, result: Any) -> AbstractAsyncContextManager[Any]:
        """Open a step whose body the caller writes (CUR-15)."""
        run = self._check(attempt)
        if result is None:
            return self._steps_of(run).open(name)
        from towline.execution.step_values import step_codec

        encode, decode = step_codec(result, attempt.workdir)
        return self._steps_of(run).open(name, encode=encode, decode=decode)

    def _steps_of(self, run: TaskRun) -> StepStore:
        """The steps of the attempt under way; each attempt may use every name once (CUR-16)."""
        attempt = run.attempt
        if run.steps is None or run.steps[0] is not attempt:
            from towline.state.steps import StepStore

            steps = StepStore(
                self._store,
                attempt.task_id,
                attempt.epoch,
                self._plan_id,
                attempt=attempt.attempt,
                clock=self._clock,
                check=lambda: self._check_ended(attempt),
            )
            run.steps = (attempt, steps)
        return run.steps[1]  # type: ignore[no-any-return]

    async def open_cursor(self, attempt: Attempt, options: Mapping[str, Any]) -> Any:
        """Open the task's cursor where the last attempt left it (CUR-01)."""
        run = self._check(attempt)
        if self._cursors is None:
            from towline.state.cursors import CursorStore  # most runs have no cursor, and shall not pay for one

            self._cursors = CursorStore(self._store, clock=self._clock, scope=self._scope)
        cursor: Cursor[Any, Any] = await self._cursors.open(
            attempt.task_id, attempt.epoch, self._plan_id, **options, **self._cursor_hooks(attempt)
        )
        run.cursors = (*run.cursors, cursor)
        return cursor

    def open_sync_cursor(self, attempt: Attempt, options: Mapping[str, Any]) -> Any:
        """Open the cursor of a sync body, in the body's own thread: a target's connection lives there."""
        from towline.state.sync_cursor import SyncCursor

        cursor = self.blocking(attempt, lambda: self.open_cursor(attempt, options))
        return SyncCursor(cursor, lambda call: self.blocking(attempt, call, shielded=True))

    def _cursor_hooks(self, attempt: Attempt) -> dict[str, Any]:
        run = self._runs[attempt.task_id]
        return {
            "notify": lambda moved: self._on_loop(lambda: self.cursor_moved(run, moved)),
            "check": lambda: self._check(attempt) and None,
            "check_ended": lambda: self._check_ended(attempt),
        }

    def cursor_moved(self, run: TaskRun, moved: CursorProgress) -> None:
        """Show where a cursor is; a stored position also goes to the plan (PLAN-41)."""
        run.row.done, run.row.total = moved.done, moved.total
        # Without an interval each move is stored; two of them may fall into one tick of the clock.
        is_stored = moved.next_checkpoint_at is None or moved.last_checkpoint_at != run.saved_at
        if moved.last_checkpoint_at is not None and is_stored:
            run.saved_at = moved.last_checkpoint_at
            self._checkpoint(run, moved.done, moved.total)
        now = self._loop.time()
        if now >= run.progress_due_at:
            run.progress_due_at = now + PROGRESS_INTERVAL_S
            data: dict[str, Any] = {"done": moved.done, "total": moved.total}
            if moved.last_checkpoint_at is not None:
                data["last_checkpoint_at"] = moment(moved.last_checkpoint_at)
            if moved.next_checkpoint_at is not None:
                data["next_checkpoint_at"] = moment(moved.next_checkpoint_at)
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
        """Open the attempt's own runtime at its first call; there is none unless the composition root gave one (OFF-901)."""
        run = self._check(attempt)
        if self._open_offload is None:
            from towline.errors.offload import OffloadUnavailableError

            raise OffloadUnavailableError(f"ctx.offload in {attempt.task_id}", 0.0, 0)
        if run.offload is None:
            run.offload = self._open_offload(run)
        return run.offload.door

    # -------------------------------------------------------------- sync bodies

    def blocking(self, attempt: Attempt, call: Callable[[], Awaitable[Any]], *, shielded: bool = False) -> Any:
        """Run an async door for a body's thread; a stop of the task ends the wait (RUN-22).

        ``shielded``: the call has its own limits and may end what the body has begun (CUR-08).
        """
        self._check_ended(attempt)
        if not shielded:
            self._check(attempt)
        run = self._runs[attempt.task_id]

        async def on_loop() -> Any:
            return await call()

        waiting: concurrent.futures.Future[Any] = asyncio.run_coroutine_threadsafe(on_loop(), self._loop)
        if not shielded:
            run.in_flight.add(waiting)
            if attempt.cancelled:  # the stop came between the check and here: it did not see this call
                waiting.cancel()
        try:
            return waiting.result()
        except BaseException as error:
            import concurrent.futures as futures

            if isinstance(error, futures.CancelledError):
                raise asyncio.CancelledError(f"{attempt.task_id} was asked to end") from None
            raise
        finally:
            run.in_flight.discard(waiting)


def _refuse_without_lease(attempt: Attempt, run: TaskRun | None) -> None:
    """Tell a body that goes on after its cancellation that its task has another holder (RUN-47)."""
    if run is not None and run.attempt is attempt and run.stop == "lease_lost":
        from towline.errors.coordination import LeaseLostError

        raise LeaseLostError(attempt.task_id, attempt.epoch, 0, attempt.worker_id)
