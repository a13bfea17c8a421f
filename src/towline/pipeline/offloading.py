"""What stands behind ``ctx.offload``: a runtime per attempt, on the agents that the options name (OFF-901 to OFF-910)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from towline.execution.options import Options
    from towline.execution.taskrun import TaskRun
    from towline.offload import OffloadEvent, PipelineOffload

PER_CALL = frozenset({"call_offloaded", "call_declined", "call_committed"})
"""Events of every single call; the run gets them as the counts of the attempt, not one by one."""


class OffloadOpener:
    """Opens the runtime of a task that asks for ``ctx.offload``; the attempt closes it with its cursors.

    Nothing of the extra is imported before a body asks.
    """

    def __init__(
        self, options: Options, environ: Mapping[str, str], show: Callable[[str, TaskRun, dict[str, Any]], None], *,
        program: str | None = None,
    ) -> None:  # fmt: skip
        self._options, self._environ, self._show, self._program = options.offload, environ, show, program

    def __call__(self, run: TaskRun) -> _AttemptOffload:
        """Open the runtime of one attempt; agents are dialled beside its body.

        Raises:
            OffloadUnavailableError: The extra is not installed.
        """
        try:
            from towline.offload import OffloadAccess, PipelineOffload, options_from
        except ImportError as error:
            from towline.errors.offload import OffloadUnavailableError

            why = f"ctx.offload in {run.row.id} needs numpy (pip install 'towline[offload]'; {error})"
            raise OffloadUnavailableError(why, 0.0, 0) from error
        from towline.access.tokens import read_token

        options = self._options if self._options is not None else options_from(self._environ)
        token = read_token(self._environ) if options.endpoints else None
        door = PipelineOffload(
            endpoints=options.endpoints,
            options=options,
            access=OffloadAccess(token=token) if token else None,
            program=self._program,
            task=f"{run.attempt.run_id}/{run.row.id}",
            epoch=run.attempt.epoch,
            on_event=lambda event: self._tell(run, event),
        )
        door.begin()
        return _AttemptOffload(door, run, self._show)

    def _tell(self, run: TaskRun, event: OffloadEvent) -> None:
        if event.kind in PER_CALL:
            return
        told = {"worker": event.worker, "call": event.call, "kernel": event.kernel, "detail": dict(event.detail)}
        self._show("offload", run, {"event": event.kind, **{name: value for name, value in told.items() if value}})


class _AttemptOffload:
    """One attempt's runtime, and the counts that it leaves in the run's events when it closes (OFF-909)."""

    def __init__(
        self, door: PipelineOffload, run: TaskRun, show: Callable[[str, TaskRun, dict[str, Any]], None]
    ) -> None:
        self.door, self._run, self._show = door, run, show

    async def close(self) -> None:
        """End with the attempt: nothing is committed afterwards (OFF-907)."""
        stats = self.door.stats()
        try:
            await self.door.close()
        finally:
            counts = {
                "offloaded": stats.offloaded,
                "declined": dict(stats.declined_by_reason),
                "redispatched": stats.redispatched,
                "bytes_sent": stats.bytes_sent,
                "bytes_received": stats.bytes_received,
            }
            self._show("offload", self._run, {"event": "attempt_closed", "detail": counts})
