"""Bodies in processes of their own, as the node runs them (RUN-30 to 36)."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import msgspec

from towline.execution.isolation_calls import BodyCalls
from towline.execution.isolation_inputs import encode_inputs, encode_item
from towline.execution.isolation_messages import NOTHING, AttemptFacts, Raised, Returned, Start
from towline.execution.isolation_process import BodyProcess
from towline.modules.retry import Skip
from towline.serialization.codec import codec_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from towline.execution.isolation_calls import TaskLog
    from towline.execution.taskrun import TaskRun
    from towline.modules.doors import Doors
    from towline.modules.spec import ModuleSpec
    from towline.modules.target import TargetRef
    from towline.state.cursor import CursorProgress
    from towline.state.store import StateStore


class ProcessBodies:
    """Runs bodies in child processes that a stop really ends.

    Args:
        target: The program that the children load.
        specs: Its modules by name.
        doors: What contexts may ask for.
        log: Takes lines and log records of bodies.
        mask: Hides secrets in a text.
        state: Where cursors and steps lie.
        plan_id: Of the plan that runs.
        cursor_moved: Hears of each move of a cursor.
        sources: Place of a task to, by parameter, the modules behind the values that a selector gives it.
        cancel_grace_s: Between the request to end and SIGTERM.
        terminate_grace_s: Between SIGTERM and SIGKILL.
    """

    def __init__(
        self,
        *,
        target: TargetRef,
        specs: Mapping[str, ModuleSpec],
        doors: Doors,
        log: TaskLog,
        mask: Callable[[str], str],
        state: StateStore,
        plan_id: str,
        cursor_moved: Callable[[TaskRun, CursorProgress], None],
        sources: Callable[[int], Mapping[str, Sequence[str]]],
        cancel_grace_s: float = 1.0,
        terminate_grace_s: float = 5.0,
    ) -> None:
        self._target, self._specs, self._doors, self._log, self._mask = target, specs, doors, log, mask
        self._state, self._plan_id, self._cursor_moved, self._sources = state, plan_id, cursor_moved, sources
        self._graces_s = (cancel_grace_s, terminate_grace_s)

    async def run(self, run: TaskRun) -> Any:
        """Run one attempt in a process and return the value of its body.

        A stop of ``run`` is carried out here: asked, then SIGTERM, then SIGKILL for the whole tree (RUN-33).

        Raises:
            ProcessDiedError: The process ended without a result, or sent what is no message.
            CancelledError: It was asked to end.
            Skip, KeyboardInterrupt: As the body raised them.
            Exception: What the body raised, rebuilt where its type allows.
        """
        start = self._start_of(run)
        calls = BodyCalls(run, self._doors, self._log, self._state, self._plan_id, self._cursor_moved)
        process = BodyProcess(run, calls, self._graces_s)
        await process.open(self._mask, lambda stream, text: self._log.printed(run.attempt, stream, text))
        run.on_stop = process.ask_to_end
        if run.stop is not None:
            process.ask_to_end()
        try:
            ended = await process.converse(start)
        finally:
            await process.close()
        return _opened(run, ended)

    def _start_of(self, run: TaskRun) -> Start:
        spec, attempt = run.kind.spec, run.attempt
        facts = AttemptFacts(
            task_id=attempt.task_id,
            module=attempt.module,
            key=attempt.key,
            run_id=attempt.run_id,
            attempt=attempt.attempt,
            epoch=attempt.epoch,
            worker_id=attempt.worker_id,
            workdir=str(attempt.workdir),
            plan_id=self._plan_id,
            matrix={axis: list((spec.matrix or {})[axis]).index(value) for axis, value in attempt.matrix.items()},
        )
        params = NOTHING
        if attempt.params is not None:
            from towline.serialization.private import private_codec_for

            params = msgspec.Raw(private_codec_for(type(attempt.params)).encode(attempt.params))
        return Start(
            target=self._target,
            attempt=facts,
            inputs=encode_inputs(spec, self._specs, run.inputs or {}, self._sources(run.position), attempt.workdir),
            item=encode_item(spec, attempt.item, attempt.workdir),
            item_place=run.row.item,
            params=params,
            log_level=logging.getLogger().getEffectiveLevel(),
        )


def _opened(run: TaskRun, ended: Returned | Raised) -> Any:
    """Give the value of a body, or raise what it raised."""
    if isinstance(ended, Returned):
        return codec_for(run.kind.spec.result_type).decode(ended.value, workdir=run.attempt.workdir)
    if ended.kind == "skip":
        raise Skip(ended.error.text)
    if ended.kind == "interrupt":
        raise KeyboardInterrupt
    if ended.kind == "cancelled":
        raise asyncio.CancelledError
    raise ended.error.rebuild()
