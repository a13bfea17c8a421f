"""Master and workers over the hub's in-process links, which break at seeded moments of virtual time."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from distributed.together import Seen, run_together
from towline import Context, SyncContext, module, result_of
from towline.coordination.hub import Hub, HubCoordinator
from towline.coordination.memory import MemoryCoordinators
from towline.testing import clause, run_virtual
from towline.testing.pipe_wire import PipeWire

if TYPE_CHECKING:
    from collections.abc import Sequence

    from towline.coordination.contract import MasterCoordinator, WorkerCoordinator

ran: list[int] = []


@module
def seeds(ctx: SyncContext) -> list[int]:
    return list(range(24))


@module(each=result_of(seeds))
async def grow(ctx: Context, item: int) -> int:
    ran.append(item)
    await asyncio.sleep(1 + item % 5)
    return item * item


@module
def harvest(ctx: SyncContext, grown: list[int] = result_of(grow)) -> int:
    return sum(grown)


class BreakingCoordinators:
    """The master beside the ledger, workers over lines of which one breaks now and then.

    ``deaf``: a line that breaks first carries nothing for a while, and neither end is told.
    """

    def __init__(self, random: Random, every_s: float) -> None:
        self._runs, self._random, self._every_s = MemoryCoordinators(), random, every_s
        self._hubs: dict[str, Hub] = {}
        self._wires: list[PipeWire] = []
        self._serving: list[asyncio.Task[None]] = []
        self.cuts = 0

    async def create_master(self, run_id: str) -> MasterCoordinator:
        return await self._runs.create_master(run_id)

    async def create_worker(self, run_id: str) -> WorkerCoordinator:
        hub = self._hubs.setdefault(run_id, Hub(self._runs.run(run_id), run_id, token="a token of the test"))

        async def open_wire() -> PipeWire:
            near, far = PipeWire.pair()
            self._wires.append(far)
            self._serving.append(asyncio.ensure_future(hub.serve(far)))
            return near

        return HubCoordinator(run_id, open_wire, token=hub.token, random=self._random)

    async def live_runs(self, program: str) -> Sequence[str]:
        return await self._runs.live_runs(program)

    async def break_lines(self) -> None:
        while True:
            await asyncio.sleep(self._random.uniform(0, 2 * self._every_s))
            if not self._wires:
                continue
            wire = self._wires.pop(self._random.randrange(len(self._wires)))
            wire.is_cut = True
            await asyncio.sleep(self._random.choice((0.0, 0.0, 1.0)))
            wire.is_cut = False
            wire.close(1006, "broken by the test")
            self.cuts += 1


@clause("COORD-H08", "COORD-H09")
@pytest.mark.parametrize("seed", range(8))
def test_lines_that_break_cost_no_work(seed: int) -> None:
    """Every task is done, its value arrives, and next to none of them is done twice."""
    ran.clear()

    async def scenario() -> tuple[Seen, int]:
        coordinators = BreakingCoordinators(Random(seed), every_s=1.0)
        breaking = asyncio.ensure_future(coordinators.break_lines())
        given: dict[str, Any] = {"coordinator": coordinators}
        run = await run_together([harvest], workers={"w-1": (), "w-2": (), "w-3": ()}, **given)
        breaking.cancel()
        return run, coordinators.cuts

    run, cuts = run_virtual(scenario())
    assert run.report.status == "succeeded", f"seed {seed}: {run.states}"
    assert cuts > 5
    assert set(ran) == set(range(24))
    assert len(ran) == 24, f"seed {seed}: held leases survive a break: {sorted(ran)}"
    assert run.codes == [0, 0, 0]
