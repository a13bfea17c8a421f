"""What every node of a run is made of: a run in one process, a master and a worker compose it alike (RUN-03, DIST-17)."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from towline.clock import Clock
from towline.execution.abandoned import AbandonedBodies
from towline.execution.attempts import Attempts
from towline.execution.deadlines import Deadlines
from towline.execution.doors import NodeDoors
from towline.execution.growth import Growth
from towline.execution.output import Output
from towline.execution.run_request import RunRequest
from towline.execution.runner import Host, Runner
from towline.execution.stopping import Stopper
from towline.execution.surroundings import Surroundings
from towline.execution.taskrun import PROCESS, TaskRun
from towline.execution.threads import ThreadPool
from towline.execution.values import Values
from towline.masking.masker import Masker
from towline.modules.doors import Attempt
from towline.modules.target import TargetRef
from towline.pipeline.caching import open_cache
from towline.pipeline.module_rules import kinds_of
from towline.pipeline.node_fingerprint import node_fingerprint
from towline.pipeline.offloading import OffloadOpener
from towline.pipeline.program import Program, secrets_of
from towline.pipeline.stores import artifact_store
from towline.planning.built import BuiltPlan
from towline.state.store import StateStore

if TYPE_CHECKING:
    from towline.events.log import EventLog
    from towline.execution.isolation import ProcessBodies
    from towline.execution.run_folder import RunFolder
    from towline.modules.outcomes import Outcome
    from towline.planning.live import LivePlan
    from towline.planning.records import PlannedTask
    from towline.state.results import ResultFile


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What a node knows of the run that it takes part in, before it has a part of it running."""

    program: Program
    target: TargetRef | None
    """Where another process finds the program; ``None``: nowhere, so that no body can be isolated (MOD-27)."""
    request: RunRequest
    built: BuiltPlan
    params: Any
    store: StateStore
    run_id: str
    plan_id: str
    """Of the master's plan, also on a worker: cursors and steps go on under it."""
    worker_id: str
    clock: Clock


class NodeHost(Host, Protocol):
    """Who is told what executions on this node do; called in the loop's thread."""

    def show(self, kind: str, run: TaskRun, data: dict[str, Any]) -> None:
        """Make an event about a task."""
        ...

    def checkpoint(self, run: TaskRun, done: int, total: int | None) -> None:
        """Take the position that a cursor has stored (PLAN-41)."""
        ...

    def retrying(self, run: TaskRun, outcome: Outcome[Any], pause_s: float) -> None:
        """Hear that an attempt was no success, and that another follows after a pause."""
        ...


class RunNode:
    """Holds what is said, known and counted on one node, and composes the runner of its tasks.

    What differs from node to node comes in: the plan, where events and logs go, and the host of the runner.

    Args:
        facts: The run.
        plan: Its tasks: the stored plan, or a worker's own copy, which grows as tasks come.
        events: Takes what happens here.
        folder: Takes the log lines of tasks.
        results: Where values of earlier runs are read.
        values_travel: Each reader decodes its own copy of a value, and one that cannot be encoded fails its task.
        echo: Write printed text through to where it would have gone.
    """

    def __init__(
        self,
        facts: NodeFacts,
        plan: LivePlan,
        *,
        events: EventLog,
        folder: RunFolder,
        results: ResultFile,
        values_travel: bool,
        echo: bool,
    ) -> None:
        self.facts, self.plan, self.events, self._values_travel = facts, plan, events, values_travel
        request, built = facts.request, facts.built
        self.loop = asyncio.get_running_loop()
        self.workdir = request.workdir or Path.cwd()
        self.masker = Masker(request.tell_secret)
        for secret in secrets_of(facts.params):
            self.masker.register(secret.reveal())
        self.output = Output(
            events=events,
            folder=folder,
            mask=self.masker.mask,
            clock=facts.clock,
            loop=self.loop,
            run_id=facts.run_id,
            echo=echo,
        )
        self.kinds = kinds_of(built, request.options, isolate_all=request.isolate_all)
        codecs = {name: kind.codec for name, kind in self.kinds.items()}
        tasks = plan.document.tasks
        self.values = Values(built, tasks, codecs, results, copies=values_travel, workdir=self.workdir)
        self.growth = Growth(built, plan, self.values, max_tasks=request.options.max_tasks, workdir=self.workdir)
        self.artifacts = artifact_store(facts.program, request, facts.store)
        self.runs: dict[str, TaskRun] = {}
        """What is executing here, by task id; an abandoned body stays until it has ended."""
        self.commands: dict[str, int] = {}
        """Task id to how many commands it has run."""
        self.retry_count = 0
        self._deadlines, self._threads = Deadlines(self.loop), ThreadPool()

    # -------------------------------------------------------------- executions

    def execution(self, position: int, row: PlannedTask, *, attempt: int, epoch: int) -> TaskRun:
        """Make an execution of a task, ready for the runner."""
        facts = self.facts
        standing = Attempt(
            task_id=row.id,
            module=row.module,
            key=row.key,
            run_id=facts.run_id,
            attempt=attempt,
            epoch=epoch,
            worker_id=facts.worker_id,
            workdir=self.workdir,
            params=facts.params,
        )
        matrix = facts.built.matrix.get(position)
        if matrix is not None:
            standing.matrix = matrix
        inputs = None if row.parent is not None else self.values.inputs(position)
        return TaskRun(position, row, self.kinds[row.module], standing, inputs, row.attempts)

    def forget(self, run: TaskRun) -> None:
        """Let an ended execution go; its commands stay counted."""
        if run.commands:
            self.commands[run.row.id] = self.commands.get(run.row.id, 0) + run.commands
        if not run.abandoned:
            self.runs.pop(run.row.id, None)

    # -------------------------------------------------------------- the runner

    def runner_for(self, host: NodeHost, doors_class: type[NodeDoors] = NodeDoors) -> Runner:
        """Compose the runner of this node, and all that surrounds a body here."""
        facts, options = self.facts, self.facts.request.options
        doors = doors_class(
            runs=self.runs,
            output=self.output,
            masker=self.masker,
            store=facts.store,
            scope=facts.program.id,
            show=host.show,
            checkpoint=host.checkpoint,
            clock=facts.clock,
            loop=self.loop,
            plan_id=facts.plan_id,
            open_offload=OffloadOpener(
                options, os.environ, host.show, program=node_fingerprint(facts.program, facts.built.graph_digest)
            ),
        )
        surroundings = Surroundings(
            doors=doors,
            built=facts.built,
            values=self.values,
            growth=self.growth,
            artifacts=self.artifacts,
            cache=open_cache(self),
            output=self.output,
            masker=self.masker,
            threads=self._threads,
            options=options,
            values_must_travel=self._values_travel,
            show=host.show,
        )
        stopper = Stopper(self._deadlines, options.cancel_grace_s, lambda run: runner.abandon(run))
        abandoned = AbandonedBodies(options.max_abandoned)

        def retrying(run: TaskRun, outcome: Outcome[Any], pause_s: float) -> None:
            self.retry_count += 1
            host.retrying(run, outcome, pause_s)

        attempts = Attempts(
            doors=doors,
            stopper=stopper,
            threads=self._threads,
            processes=self._processes(doors),
            abandoned=abandoned,
            clock=facts.clock,
            random=random.Random(),
            worker_id=facts.worker_id,
            on_retry=retrying,
        )
        runner = Runner(
            host=host,
            attempts=attempts,
            stopper=stopper,
            abandoned=abandoned,
            surroundings=surroundings,
            hook_timeout_s=options.hook_timeout_s,
            worker_id=facts.worker_id,
        )
        return runner

    def _processes(self, doors: NodeDoors) -> ProcessBodies | None:
        """Where isolated bodies run; a program that has some was checked to have a target."""
        facts = self.facts
        if facts.target is None or not any(kind.place is PROCESS for kind in self.kinds.values()):
            return None
        from towline.execution.isolation import ProcessBodies

        return ProcessBodies(
            target=facts.target,
            specs=facts.built.specs,
            doors=doors,
            log=self.output,
            mask=self.masker.mask,
            state=facts.store,
            plan_id=facts.plan_id,
            cursor_moved=doors.cursor_moved,
            sources=self.values.sources,
            cancel_grace_s=facts.request.options.cancel_grace_s,
            terminate_grace_s=facts.request.options.terminate_grace_s,
        )

    # -------------------------------------------------------------- the end

    def close(self) -> None:
        """Stop timers and threads; twice without harm."""
        self._deadlines.close()
        self._threads.close()
