"""A worker process of a simulated run."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from towline.coordination.records import OutcomeRecord
from towline.distributed.data_loss import register_when_open, ride_out
from towline.distributed.keeper import HeldLeases, Keeper, KeeperTask
from towline.distributed.slots import Slots
from towline.distributed.spool import Spool
from towline.distributed.worker import Worker
from towline.errors.coordination import CoordinationError, WorkerIdTakenError
from towline.testing.contract_cases.scene import registration_of
from towline.testing.faulty_link import FaultyCoordinator
from towline.testing.simulation.world import HEARTBEAT_S, OPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from towline.coordination.records import Lease
    from towline.testing.simulation.world import World


class SimulatedWorker:
    """A worker process: the real worker and keeper; bodies are pauses that stop while the process sleeps.

    ``left`` is told when it gives up.
    """

    def __init__(
        self, world: World, name: str, session: str, left: Callable[[SimulatedWorker, CoordinationError], None]
    ) -> None:
        self._world, self.name, self.session, self._left = world, name, session, left
        self.coordinator = FaultyCoordinator(
            world.make_link(), world.run_id, world.plan, Random(f"{world.plan.seed}-{session}")
        )
        self.awake = asyncio.Event()
        self.awake.set()
        self._bodies: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._life: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Start the process."""
        self._life = asyncio.get_running_loop().create_task(self._live(), name=f"{self.name}-{self.session}")

    async def _live(self) -> None:
        held = HeldLeases()
        registration = registration_of(self._world, self.name, self.session, parallelism=2)  # type: ignore[arg-type]
        spool = Spool(registration.ref, self._world.run_id)
        worker = Worker(
            self.coordinator,
            registration,
            self,
            slots=Slots(2),
            spool=spool,
            held=held,
            random=Random(f"{self._world.plan.seed}-{self.session}-w"),
            tell=lambda _: None,
            lost_after_s=OPTIONS.master_timeout_s,
        )
        await self._register(registration)
        keeper = KeeperTask(Keeper(registration, held, worker, interval_s=HEARTBEAT_S), self.coordinator)
        keeper.start()
        end = asyncio.get_running_loop().create_task(self._watch_end(worker))
        try:
            await worker.run()
            await worker.say_goodbye({})
        except CoordinationError as error:
            self._left(self, error)
        finally:
            end.cancel()
            await keeper.stop()

    async def _watch_end(self, worker: Worker) -> None:
        """Drop what runs on after the end of the run, as a worker process does (DIST-25)."""
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            with suppress(CoordinationError):
                if (await self.coordinator.run_state()).state == "completed":
                    worker.drop_leftovers()

    async def _register(self, registration: Any) -> None:
        while True:
            try:
                await register_when_open(self.coordinator, registration, limit_s=OPTIONS.registration_timeout_s)
                return
            except WorkerIdTakenError:
                await asyncio.sleep(1.0)

    def start(self, lease: Lease, ended: Callable[[OutcomeRecord], None]) -> None:
        """Run the body of a leased task."""
        body = asyncio.get_running_loop().create_task(self._body(lease, ended))
        self._bodies[lease.task_id, lease.epoch] = body

    async def _body(self, lease: Lease, ended: Callable[[OutcomeRecord], None]) -> None:
        state: Literal["succeeded", "cancelled"] = "succeeded"
        value = 0
        try:
            self._world.book.started(lease, self.session)
            for dependency in lease.assignment.dependencies:
                wait = partial(self.coordinator.wait_for_outcome, dependency.task_id)
                record = await ride_out(wait, limit_s=OPTIONS.master_timeout_s, then=partial(asyncio.sleep, 0))
                assert isinstance(record.value, msgspec.Raw)
                value += msgspec.json.decode(record.value, type=int)
            await asyncio.sleep(self._world.graph.durations[lease.task_id])
            await self.awake.wait()
            self._world.book.wrote(lease)
        except asyncio.CancelledError:
            state = "cancelled"
        finally:
            self._bodies.pop((lease.task_id, lease.epoch), None)
        ended(
            OutcomeRecord(
                task_id=lease.task_id,
                epoch=lease.epoch,
                worker_id=lease.worker_id,
                state=state,
                value=msgspec.Raw(b"%d" % (1 + value % 1_000_003)) if state == "succeeded" else msgspec.UNSET,
                reason=None if state == "succeeded" else "stopped",
            )
        )

    def stop(self, lease: Lease, code: str) -> None:
        """Cancel a body."""
        body = self._bodies.get((lease.task_id, lease.epoch))
        if body is not None:
            body.cancel()

    def accepted(self, outcome: OutcomeRecord) -> None:
        """Values are always asked for here."""

    async def kill(self) -> None:
        """End without a word."""
        self.coordinator.link.cut(for_ever=True)
        tasks = [task for task in (self._life, *self._bodies.values()) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    @property
    def is_done(self) -> bool:
        """Whether the process has ended."""
        return self._life is None or self._life.done()
