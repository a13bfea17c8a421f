"""The master's own slots: a worker in the master's process, which takes tasks as everybody does (DIST-30)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from towline.distributed.slots import Slots
from towline.errors.coordination import CoordinationError
from towline.execution.options import default_parallelism, node_cores
from towline.pipeline.taking_part import TakingPart

if TYPE_CHECKING:
    from collections.abc import Callable

    from towline.coordination.contract import CoordinatorFactory, MasterCoordinator
    from towline.execution.run_request import RunRequest
    from towline.pipeline.run_node import NodeFacts


def own_slots(request: RunRequest) -> int:
    """Return how many tasks the master's process runs at once; 0: it only leads."""
    slots: int | None = request.distributed.master_parallelism
    if slots is None:
        slots = request.options.parallelism or default_parallelism(node_cores())
    return slots


def successor_id(worker_id: str, owner_epoch: int) -> str:
    """Return the id of the pool of a master that took over: the dead one's sessions keep theirs (COORD-C03)."""
    return f"{worker_id}-{owner_epoch}"


def is_pool(worker_id: str, name: str) -> bool:
    """Whether a worker is the pool of some master of the run, the first or a successor; ``name``: the first one's id."""
    first, _, epoch = worker_id.rpartition("-")
    return worker_id == name or (first == name and epoch.isdigit())


async def free_former_pools(coordinator: MasterCoordinator, name: str) -> None:
    """End the sessions of pools of masters before this one: what they held is queued at once.

    They were slots of a process whose lease on the state has run out; waiting for their leases as well would be a
    second worker timeout in which nobody works on these tasks (DIST-52). One that was only frozen is fenced, as others.
    """
    found = {lease.worker_id for lease in await coordinator.active_leases()}
    found |= {worker.worker_id for worker in await coordinator.workers()}
    for worker_id in sorted(found):
        if is_pool(worker_id, name):
            await coordinator.expel(worker_id)


class MasterPool:
    """Works from :meth:`start` to :meth:`finish`, or to :meth:`break_off`; closed in any case.

    ``facts``: the master's own, with the worker id that the pool has. ``capabilities``: beside those of the machine.
    """

    def __init__(
        self,
        facts: NodeFacts,
        coordinator: MasterCoordinator,
        factory: CoordinatorFactory,
        *,
        slots: int,
        owner_epoch: int,
        capabilities: tuple[str, ...],
        tell: Callable[[str], None],
    ) -> None:
        program, request = facts.program, facts.request
        # Its rows are its own: what the master's plan says of them comes with the assignments, as to everybody.
        built = program.build(facts.params, request.options, must_travel=True)
        self._coordinator, self._drain_timeout_s = coordinator, request.distributed.drain_timeout_s
        self._part = TakingPart(
            msgspec.structs.replace(facts, built=built),
            coordinator,
            factory,
            parallelism=slots,
            slots=Slots(slots),
            owner_epoch=owner_epoch,
            extra_capabilities=capabilities,
            tell=tell,
        )
        self._working: asyncio.Task[str]

    async def start(self) -> None:
        """Register, and take tasks from now on."""
        await self._coordinator.register(self._part.registration)
        self._part.start()
        self._working = asyncio.get_running_loop().create_task(self._part.worker.run(), name="towline-master-pool")

    async def finish(self) -> None:
        """Wait until the coordinator says that no more comes, and tell what was counted."""
        await asyncio.wait([self._working])
        if not self._working.cancelled() and self._working.exception() is None:
            await self._part.say_goodbye()

    async def break_off(self, error: Exception) -> None:
        """End what runs here and publish none of it; a body that will not end is left to the end of the process."""
        self._part.worker.break_off(error if isinstance(error, CoordinationError) else CoordinationError(str(error)))
        await asyncio.wait([self._working], timeout=self._drain_timeout_s)
        self._working.cancel()
        await asyncio.gather(self._working, return_exceptions=True)

    async def close(self) -> None:
        """Stop beating, and the node."""
        await self._part.stop_beating()
        self._part.close()
