"""Before anything runs: take the state, decide what to do with an earlier plan, make the plan durable."""

from __future__ import annotations

import os
import platform
import random
from typing import TYPE_CHECKING, Any

import msgspec

from towline.clock import moment
from towline.identity import new_run_id
from towline.planning.document import encode_slices
from towline.planning.live import LivePlan
from towline.planning.records import PlanDocument, PlanOwner
from towline.state.opening import open_store
from towline.state.planfile import PlanFile
from towline.state.store import Fence, Owner

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Container, Mapping

    from towline.clock import Clock
    from towline.execution.run_request import RunRequest
    from towline.modules.outcomes import Outcome
    from towline.pipeline.program import Program
    from towline.planning.built import BuiltPlan
    from towline.state.store import Ownership, StateStore


class OpenedPlan(msgspec.Struct, kw_only=True):
    """A durable plan that is ours, and everything that was decided on the way to it."""

    plan: LivePlan
    plan_file: PlanFile
    store: StateStore
    ownership: Ownership
    run_id: str
    owner_id: str
    resumed_from: str | None = None
    announcements: list[tuple[str, dict[str, Any]]] = []
    warnings: list[str] = []
    estimates: Mapping[str, float] = {}
    selection: Container[int] | None = None
    decisions: Mapping[int, Outcome[Any]] = {}
    cursors: Any = None
    steps: Any = None
    artifacts: Any = None
    cache: Any = None
    processes: Any = None

    def decided(self, position: int) -> Outcome[Any] | None:
        """What was decided about a task before the run: a skip, or nothing."""
        return self.decisions.get(position)

    def append_for(self, run_id: str) -> Callable[[str, bytes], Awaitable[None]]:
        """Give the run's folder its way into the store."""
        fence = Fence(self.ownership.epoch)

        async def append(name: str, data: bytes) -> None:
            await self.store.append(f"runs/{run_id}/{name}", data, fence)

        return append

    def shown_plan(self) -> Any:
        """The plan as observers see it."""
        from towline.planning.plan import Plan

        return Plan(pipeline=self.plan.document.pipeline, tasks=tuple(self.plan.document.tasks))

    async def close(self) -> None:
        """Give everything back."""
        await self.plan_file.close()
        await self.ownership.release()
        await self.store.close()


async def open_run(program: Program, request: RunRequest, built: BuiltPlan, params: Any, clock: Clock) -> OpenedPlan:
    """Open the state of a program for one run."""
    options = request.options
    store = open_store(options.state or f".towline/{program.name}", durability=options.durability, clock=clock)
    run_id = request.run_id or new_run_id(clock.now(), random.Random())
    at = moment(clock.now())
    owner = Owner(id=f"m-{os.getpid():x}", host=platform.node(), pid=os.getpid(), run_id=run_id, since=at)
    ownership = await store.acquire(owner)
    plan_file = PlanFile(store, ownership)
    plan_id = f"{ownership.epoch:08d}-{random.getrandbits(32):08x}"
    holder = PlanOwner(id=owner.id, host=owner.host, pid=owner.pid, epoch=ownership.epoch, since=at)
    fields = built.document_fields(plan_id=plan_id, run_id=run_id, now=at, owner=holder)
    document = PlanDocument(**fields, tasks=list(built.tasks), run_state="running", generation=1)  # type: ignore[arg-type]
    await plan_file.write_snapshot(
        encode_slices(document), generation=1, plan_id=plan_id, owner_epoch=ownership.epoch
    )
    return OpenedPlan(
        plan=LivePlan(document),
        plan_file=plan_file,
        store=store,
        ownership=ownership,
        run_id=run_id,
        owner_id=owner.id,
    )
