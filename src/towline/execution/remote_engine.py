"""The engine of a master: what it dispatches is queued first, and runs where a worker takes it (DIST-33)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from towline.execution.engine import Engine
from towline.planning.records import FINAL_STATES, StateRecord

if TYPE_CHECKING:
    import asyncio

    from towline.execution.engine import StopReason, _Turn
    from towline.execution.taskrun import TaskRun


class RemoteEngine(Engine):
    """Records ``queued`` and ``running`` as its dispatch reports them, in place of starting bodies itself."""

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self._stop_asked = False
        self._moves: list[tuple[TaskRun, Literal["queued", "running"], int, str]] = []
        self._barriers: list[asyncio.Future[None]] = []
        self._awaited: set[asyncio.Future[None]] = set()
        """Barriers that somebody waits at, those of the turn that is being written too."""

    def moved(self, run: TaskRun, state: Literal["queued", "running"]) -> None:
        """Make a move of a task between queue and workers durable, then show it."""
        self._moves.append((run, state, run.attempt.epoch, run.attempt.worker_id))
        self._kick()

    async def make_durable(self) -> None:
        """Return once all that was reported so far is in the journal; at once when the run has ended, or broken down."""
        if not self._complete.done():
            barrier: asyncio.Future[None] = self._loop.create_future()
            self._barriers.append(barrier)
            self._awaited.add(barrier)
            self._kick()
            try:
                await barrier
            finally:
                self._awaited.discard(barrier)

    @property
    def has_broken_down(self) -> bool:
        """Whether the run ends by an error: nothing more becomes durable."""
        return self._complete.done() and self._complete.exception() is not None

    def _break_down(self, error: Exception) -> None:
        super()._break_down(error)
        for barrier in self._awaited:
            if not barrier.done():
                barrier.set_result(None)

    def _hear(self, turn: _Turn) -> None:
        barriers, self._barriers = self._barriers, []
        turn.marked += barriers
        moves, self._moves = self._moves, []
        for run, state, epoch, worker_id in moves:
            if run.row.state not in FINAL_STATES:
                self._record_move(turn, run, state, epoch, worker_id)
        super()._hear(turn)

    def _has_more_to_hear(self) -> bool:
        return bool(self._moves or self._barriers) or super()._has_more_to_hear()

    def _record_move(
        self, turn: _Turn, run: TaskRun, state: Literal["queued", "running"], epoch: int, worker_id: str
    ) -> None:
        row = run.row
        is_running = state == "running"
        record = StateRecord(
            seq=self._writer.next_seq(),
            at=turn.at,
            task=row.id,
            state=state,
            epoch=epoch if is_running else None,
            attempts=run.first_attempt + 1 if is_running else None,
            worker=worker_id if is_running else None,
        )
        turn.records.append(record)
        data: dict[str, Any] = {"from": row.state, "to": state, "plan_seq": record.seq}
        if is_running:
            data["worker"] = worker_id
        shown_epoch = epoch if is_running else None
        turn.events.append(("task_state", turn.at, data, row.id, shown_epoch, record.attempts))

    def _dispatch(self, turn: _Turn, position: int) -> None:
        row = self._tasks[position]
        outcome = self._decided(position)
        if outcome is not None:
            self._inbox.append(self._record_final(turn, position, row, outcome, None))
            return
        run = self._make_run(position, row)
        self._record_move(turn, run, "queued", run.attempt.epoch, "")
        turn.starts.append(run)

    @property
    def is_stopping(self) -> bool:
        """Whether somebody outside the graph has asked the run to end."""
        return self._stop_asked

    def ask_stop(self, reason: StopReason, *, always_run_too: bool = True, task: int | None = None) -> None:
        if task is None:
            self._stop_asked = True
        super().ask_stop(reason, always_run_too=always_run_too, task=task)
