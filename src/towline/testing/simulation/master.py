"""The master process of a simulated run, with an engine that is no more than a graph."""

from __future__ import annotations

import asyncio
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec

from towline.clock import SystemClock
from towline.coordination.records import Assignment, DependencyRef, OutcomeRecord
from towline.distributed.dispatch import Dispatch
from towline.distributed.master import Master
from towline.modules.outcomes import Outcome, Succeeded
from towline.testing.contract_cases.scene import opening_of
from towline.testing.faulty_link import FaultyCoordinator
from towline.testing.simulation.world import OPTIONS, WORKER_TIMEOUT_S

if TYPE_CHECKING:
    from towline.coordination.records import EventBatch
    from towline.distributed.dispatch import Sent
    from towline.testing.simulation.world import World


class SimulatedMaster:
    """A master process over what is durable: the final values, and the last epoch of each task."""

    def __init__(self, world: World, owner_epoch: int) -> None:
        self._world = world
        opening = opening_of(
            world.run_id,
            WORKER_TIMEOUT_S,
            master_id=f"m-{owner_epoch}",
            owner_epoch=owner_epoch,
            replaces=owner_epoch - 1,
            epoch_jumps=world.epoch_jumps,
            requeue_limit=10_000,
            master_timeout_ms=round(OPTIONS.master_timeout_s * 1000),
        )
        random = Random(f"{world.plan.seed}-m{owner_epoch}")
        self.coordinator = FaultyCoordinator(world.make_link(), world.run_id, world.plan, random)
        self.master = Master(self.coordinator, opening, OPTIONS, self)
        self.master.dispatch = Dispatch(
            self,
            self._assignment_of,
            clock=SystemClock(),
            master_id=f"m-{owner_epoch}",
            now=asyncio.get_running_loop().time,
            result_margin_s=0.0,
            keeps_always_run=False,
            wake=self.master.wake,
        )
        self._dispatched: set[str] = set()
        self.error: Exception | None = None
        self.is_dead = False

    async def lead(self) -> None:
        """Open the run and dispatch what is ready; what follows comes by the feed."""
        await self.master.open()
        self.master.start()
        self._dispatch_ready()

    async def with_value(self, record: OutcomeRecord) -> OutcomeRecord:
        """Values of the simulation are small: each rides in its record."""
        return record

    def _dispatch_ready(self) -> None:
        for name, needs in self._world.graph.tasks.items():
            is_ready = all(need in self._world.finals for need in needs)
            if is_ready and name not in self._world.finals and name not in self._dispatched:
                self._dispatched.add(name)
                self.master.dispatch.start(self._run_of(name), asyncio.get_running_loop())
        if len(self._world.finals) == len(self._world.graph.tasks):
            self._world.all_final.set()

    def _run_of(self, name: str) -> Any:
        row = SimpleNamespace(id=name, attempts=0, epoch=self._world.epochs.get(name, 0))
        codec = SimpleNamespace(decode=lambda data, **_: msgspec.json.decode(data))
        spec = SimpleNamespace(settings=SimpleNamespace(cache=None))
        kind = SimpleNamespace(codec=codec, retry=SimpleNamespace(max_s=0.0, count=0), spec=spec)
        attempt = SimpleNamespace(worker_id="", epoch=0, workdir=None)
        return SimpleNamespace(
            row=row, kind=kind, attempt=attempt, first_attempt=0, tries=0, payload=None, artifacts=(), error=None
        )

    def _assignment_of(self, run: Any) -> Assignment:
        needs = self._world.graph.tasks[run.row.id]
        references = tuple(DependencyRef(task_id=need, state="succeeded", has_value=True) for need in needs)
        return Assignment(task_id=run.row.id, module="m", dependencies=references, epoch_floor=run.row.epoch)

    def moved(self, run: Any, state: str) -> None:
        """The journal: the epoch of a claim is durable once it is heard of."""
        epochs = self._world.epochs
        epochs[run.row.id] = max(epochs.get(run.row.id, 0), run.attempt.epoch)

    def ended(self, run: Any, outcome: Outcome[Any]) -> None:
        """The journal: a final outcome is durable, and its dependents are ready."""
        name = run.row.id
        value = outcome.value if isinstance(outcome, Succeeded) else -1
        self._world.book.ended(name, value, self._world.graph.value(name))
        self._world.finals[name] = value
        self._dispatch_ready()

    async def outcome_record_of(self, task_id: str) -> OutcomeRecord | None:
        """Give a value that only the plan has."""
        value = self._world.finals.get(task_id)
        if value is None:
            return None
        epoch = self._world.epochs.get(task_id, 0)
        return OutcomeRecord(
            task_id=task_id, epoch=epoch, worker_id="plan", state="succeeded", value=msgspec.Raw(b"%d" % value)
        )

    async def cached(self, sent: Sent) -> OutcomeRecord | None:
        """Nothing is cached here."""
        return None

    async def make_durable(self) -> None:
        """What is heard is durable at once."""

    def take_events(self, batch: EventBatch) -> None:
        """Bodies here say nothing."""

    def note(self, sent: Sent, text: str) -> None:
        """Tasks here have no log."""

    def warn(self, text: str) -> None:
        """Nobody reads it."""

    def is_lost(self, error: Exception) -> None:
        """The run cannot go on."""
        self.error = error
        self._world.all_final.set()

    async def kill(self) -> None:
        """End without a word."""
        self._world.epoch_jumps = self.master.opening.epoch_jumps + 1
        self.is_dead = True
        self.coordinator.link.cut(for_ever=True)
        await self.master.stop()
