"""One run from the request to the report: opens the state, runs the session, closes what was opened."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from towline.clock import SystemClock
from towline.pipeline.garbage import HeapAside, collections_paused
from towline.pipeline.module_problems import limited_threads
from towline.pipeline.program import refuse_without_target
from towline.pipeline.run_node import NodeFacts
from towline.pipeline.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from towline.clock import Clock
    from towline.execution.observers import Observer
    from towline.execution.report import RunReport
    from towline.execution.run_request import RunRequest
    from towline.modules.target import TargetRef
    from towline.pipeline.program import Program
    from towline.planning.built import BuiltPlan

LOCAL_WORKER_ID = "local"
"""The id of the node that runs everything itself, and of the one that leads others."""

NAMES_SHOWN = 5
"""Modules that a warning about several names; ``towline check`` has all of them."""


async def run_session(
    program: Program,
    target: TargetRef | None,
    request: RunRequest,
    observers: Sequence[Observer],
    clock: Clock | None = None,
    session_class: type[Session] = Session,
) -> tuple[RunReport, BaseException | None]:
    """Run a program as asked. Returns the report and the exception of the root failure.

    Raises:
        TowlineError: Nothing ran, or state was lost (exit 4).
    """
    from towline.pipeline.opening import open_run

    clock = clock or SystemClock()
    started_at = clock.now()
    started = clock.monotonic()
    heap = HeapAside()
    with collections_paused():
        params = program.params_for(request.params)
        built = program.build(params, request.options, must_travel=request.values_travel)
        refuse_without_target(built, target)
        session_class.refuse_early(request)
        opened = await open_run(program, request, built, params, clock)
        heap.take(len(built.tasks))
    try:
        if request.greet is not None:
            request.greet(opened.words)
            _tell_limits(request.greet, built)
            if request.run_id is None and request.distributed is not None and not request.distributed.workers:
                join = f"with --run-id {opened.run_id}, or without a run id any run of {program.name}"
                request.greet(f"workers join this run {join}")  # the name was made up: nobody can know it (DIST-04)
        facts = NodeFacts(
            program=program,
            target=target,
            request=request,
            built=built,
            params=params,
            store=opened.store,
            run_id=opened.run_id,
            plan_id=opened.plan.document.plan_id,
            worker_id=LOCAL_WORKER_ID,
            clock=clock,
        )
        with collections_paused():
            session = session_class(facts, opened)
            heap.take(len(built.tasks))
        try:
            status = await session.run(observers)
            await session.record_end(status)
        finally:
            await session.close()
        from towline.pipeline.closing import finished_report  # the first task need not wait for the report's code

        report = await finished_report(session, status, started_at, clock.monotonic() - started)
        session.tell_end(report)
        await session.folder.flush()
        await session.feeds.run_finished(report)
    finally:
        heap.give_back()
        await opened.close()
    if session.was_cancelled:
        raise asyncio.CancelledError
    return report, session.ended_tasks.root_error()


def _tell_limits(greet: Callable[[str], None], built: BuiltPlan) -> None:
    """Say once, before anything runs, which limits cannot be enforced: ``check`` is not called each night (RUN-22)."""
    names = [spec.name for spec in limited_threads(built.specs.values())]
    if names:
        more = f" and {len(names) - NAMES_SHOWN:,} more" if len(names) > NAMES_SHOWN else ""
        greet(
            f"warning: {', '.join(names[:NAMES_SHOWN])}{more}: a timeout in a thread, which cannot be killed: at it the "
            'body is given up, and may go on working; isolation="process" ends it'
        )
