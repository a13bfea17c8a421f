"""A process takes part in a distributed run: its registration, its worker, and who keeps its leases meanwhile.

A worker process does (DIST-15), and so does the master with its own slots (DIST-30).
"""

from __future__ import annotations

import asyncio
import os
import platform
import random
from typing import TYPE_CHECKING

import towline
from towline.clock import moment
from towline.coordination.records import WorkerRegistration
from towline.distributed.keeper import HeldLeases, Keeper, KeeperTask, KeeperThread
from towline.distributed.spool import Spool
from towline.distributed.worker import Worker
from towline.modules.capabilities import platform_capabilities
from towline.pipeline.node_fingerprint import node_fingerprint
from towline.pipeline.worker_node import WorkerNode

if TYPE_CHECKING:
    from collections.abc import Callable

    from towline.coordination.contract import CoordinatorFactory, WorkerCoordinator
    from towline.distributed.slots import Slots
    from towline.pipeline.run_node import NodeFacts


class TakingPart:
    """A worker with its node. Whoever makes one registers it, starts it, awaits ``worker.run()`` and closes it.

    Args:
        facts: The run, and who this worker is in it.
        coordinator: For everything but heartbeats.
        factory: Makes the keeper's own connection, where that has a thread of its own.
        parallelism: What it registers with; ``slots`` may be shared with other runs of this process.
        owner_epoch: Of the master whose log gets the events.
        extra_capabilities: Beside those of the platform and the operator.
        tell: Told what the operator should know; the log, when absent.
    """

    def __init__(
        self,
        facts: NodeFacts,
        coordinator: WorkerCoordinator,
        factory: CoordinatorFactory,
        *,
        parallelism: int,
        slots: Slots,
        owner_epoch: int,
        extra_capabilities: tuple[str, ...] = (),
        shares_slots: bool = False,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        options = facts.request.distributed
        self.registration = registration_of(facts, parallelism, extra_capabilities)
        held, spool = HeldLeases(), Spool(self.registration.ref, facts.run_id)
        spool.owner_epoch = owner_epoch
        self._node = WorkerNode(facts, coordinator=coordinator, spool=spool)
        self.worker = Worker(
            coordinator,
            self.registration,
            self._node,
            slots=slots,
            spool=spool,
            held=held,
            tell=tell,
            lost_after_s=options.master_timeout_s,
            shares_slots=shares_slots,
        )
        keeper = Keeper(self.registration, held, self.worker, interval_s=options.heartbeat_interval_s)
        self._keeper: KeeperTask | KeeperThread = (
            KeeperThread(keeper, lambda: factory.create_worker(facts.run_id))
            if _may_beat_in_thread(options.coordinator)
            else KeeperTask(keeper, coordinator)
        )

    def start(self) -> None:
        """Listen to bodies and begin to beat; the worker is registered."""
        self._node.install()
        self._keeper.start()

    async def say_goodbye(self) -> None:
        """Tell the master that nothing more comes, and what was counted here."""
        await self.worker.say_goodbye(self._node.commands)

    async def stop_beating(self) -> None:
        """Leases are renewed no more; twice without harm."""
        await self._keeper.stop()

    def close(self) -> None:
        """Stop the node; twice without harm."""
        self._node.close()


def registration_of(facts: NodeFacts, parallelism: int, extra_capabilities: tuple[str, ...]) -> WorkerRegistration:
    """Make the registration of this process in a run; the session in it is new each time."""
    declared = (name.casefold() for name in facts.request.capabilities)
    capabilities = {*platform_capabilities(platform.system(), platform.machine()), *declared, *extra_capabilities}
    return WorkerRegistration(
        worker_id=facts.worker_id,
        session=f"{random.getrandbits(64):016x}",
        run_id=facts.run_id,
        program=facts.program.id,
        fingerprint=node_fingerprint(facts.program, facts.built.graph_digest),
        capabilities=tuple(sorted(capabilities)),
        parallelism=parallelism,
        host=platform.node(),
        pid=os.getpid(),
        library=getattr(towline, "__version__", ""),
        registered_at=moment(facts.clock.now()),
    )


def _may_beat_in_thread(coordinator: object) -> bool:
    """A body that blocks the loop then costs no lease; not where the coordinator lives on this very loop, or time is virtual."""
    is_real = type(asyncio.get_running_loop()).__module__.split(".")[0] in ("asyncio", "uvloop")
    return is_real and coordinator is not None and not _is_memory(coordinator)


def _is_memory(coordinator: object) -> bool:
    """Whether a coordinator lives in this process and on its loop alone."""
    from towline.coordination.memory import MemoryCoordinators

    is_url = isinstance(coordinator, str) and coordinator.startswith("memory:")
    return is_url or isinstance(coordinator, MemoryCoordinators)
