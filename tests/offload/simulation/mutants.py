"""Bugs planted on purpose: the soak must find each of them, or it proves nothing (spec section 11, mutation gate)."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from towline.offload.arrays import bytes_of
from towline.offload.calls import REMOTE_PHASES
from towline.offload.edges import ORDER
from towline.offload.jobs import Stage
from towline.offload.messages import JobReport, Result
from towline.offload.outgoing import Transfer
from towline.offload.pieces import Piece

if TYPE_CHECKING:
    from simulation.world import World
    from towline.offload.regions import Region, RegionPool


def _older_fence_accepted(world: World) -> None:
    def current(session: Any, number: int, fence: int) -> Any:
        dispatch = session.calls.get(number)
        return dispatch if dispatch is not None and dispatch.call.phase in REMOTE_PHASES else None

    def refuse(session: Any, message: Result, now: float) -> None:
        call = world.scheduler.calls.get(message.call)
        arrays = world.core._landing.pop(session.link, [])
        if call is not None and message.status == "ok" and arrays:
            world.scheduler.commit(call, arrays, 0.0, now)

    world.core._current = current  # type: ignore[method-assign]
    world.core._refuse_result = refuse  # type: ignore[method-assign]
    place = world.core._place_of_outputs

    def place_of_outputs(link: int, session: Any, message: Result, size: int) -> Any:
        found = place(link, session, message, size)
        call = world.scheduler.calls.get(message.call)
        if found is None and call is not None and message.status == "ok":
            import numpy as np

            arrays = [np.empty(b.shape, b.dtype) for b in call.writes]
            if sum(a.nbytes for a in arrays) == size:
                world.core._landing[link] = arrays
                return [bytes_of(a) for a in arrays]
        return found

    world.core._place_of_outputs = place_of_outputs  # type: ignore[method-assign]


def _fence_constant_per_call(world: World) -> None:
    begin = world.scheduler.begin

    def constant(call: Any, now: float) -> int:
        known = call.fence
        fence = begin(call, now)
        if known:
            call.fence = fence = known
        return fence

    world.scheduler.begin = constant  # type: ignore[method-assign]


def _late_result_applied(world: World) -> None:
    kept: dict[int, Any] = {}
    commit = world.table.commit

    def remember(writes: Any, number: int, fence: int, worker: str | None, regions: Any = ()) -> str | None:
        kept[number] = [(buffer, array.copy(), version) for buffer, array, version in writes]
        return commit(writes, number, fence, worker)

    refuse = world.core._refuse_result

    def apply(session: Any, message: Result, now: float) -> None:
        for buffer, array, _ in kept.get(message.call, ()):
            if not buffer.released:
                buffer._store(array, buffer._version)
        refuse(session, message, now)

    world.table.commit = remember  # type: ignore[method-assign]
    world.core._refuse_result = apply  # type: ignore[method-assign]


def _hello_once(world: World) -> None:
    for agent in world.agents.values():
        agent.core._greet = lambda bond, now: None  # type: ignore[method-assign]


def _current_bytes_for_any_version(world: World) -> None:
    def pull(session: Any, message: Any, now: float) -> None:
        buffer = world.table.find(message.buf)
        if buffer is not None:
            view = bytes_of(buffer._data).toreadonly()
            session.peer.outgoing.begin(Transfer(message.transfer, view, message.offset, message.buf, message.ver))

    world.core._pull = pull  # type: ignore[method-assign]


def _dedupe_by_call_alone(world: World) -> None:
    def hook(core: Any) -> None:
        admit = core._admit

        def by_call(bond: Any, message: Any, now: float) -> str:
            if message.call in bond.jobs or message.call in bond.done:
                return "duplicate"
            return str(admit(bond, message, now))

        core._admit = by_call

    _every_agent(world, hook)


def _cache_by_buffer_alone(world: World) -> None:
    def hook(core: Any) -> None:
        get, put, pin = core.cache.get, core.cache.put, core.cache.pin
        core.cache.get = lambda key: get((key[0], key[1], 0))
        core.cache.put = lambda key, piece: put((key[0], key[1], 0), piece)
        core.cache.pin = lambda key: pin((key[0], key[1], 0))
        unpin = core.cache.unpin
        core.cache.unpin = lambda key: unpin((key[0], key[1], 0))

    _every_agent(world, hook)


def _no_war_edges(world: World) -> None:
    declare = world.scheduler._tracker.declare

    def without(key: Any, reads: Any, writes: Any) -> Any:
        world.scheduler._tracker._readers.clear()
        return {other: kind for other, kind in declare(key, reads, writes).items() if kind is not ORDER or other.writes}

    world.scheduler._tracker.declare = without  # type: ignore[method-assign]


def _no_deadline_no_inventory(world: World) -> None:
    give_up = world.core._give_up

    def never(session: Any, dispatch: Any, why: str, now: float) -> None:
        if why not in ("deadline", "inventory"):
            give_up(session, dispatch, why, now)

    world.core._give_up = never  # type: ignore[method-assign]


def _finished_jobs_listed(world: World) -> None:
    inventory = world.core._inventory

    def all_listed(session: Any, beat: Any, now: float) -> Any:
        from msgspec.structs import replace

        extra = [JobReport(d.call.number, d.fence, int(Stage.QUEUED)) for d in session.calls.values()]
        return inventory(session, replace(beat, jobs=extra), now)

    world.core._inventory = all_listed  # type: ignore[method-assign]


def _partial_commit(world: World) -> None:
    commit = world.table.commit

    def first_only(writes: Any, number: int, fence: int, worker: str | None, regions: Any = ()) -> str | None:
        return commit(writes if worker is None else writes[:1], number, fence, worker)

    world.table.commit = first_only  # type: ignore[method-assign]


def _in_out_in_place(world: World) -> None:
    from towline.offload.work import Output

    def hook(runner: Any) -> None:
        start = runner.start

        def in_place(work: Any) -> None:
            for position, output in enumerate(work.outputs):
                if output.start is not None:
                    import numpy as np

                    shared = np.frombuffer(output.start, np.uint64)
                    target = next((b for b in world.table._buffers.values() if b._frozen is output.start), None)
                    if target is not None:
                        work.outputs[position] = Output(output.dtype, output.shape, None, target._data)
                    _ = shared
            start(work)

        runner.start = in_place

    for runner in world.runners.values():
        hook(runner)


def _every_agent(world: World, hook: Callable[[Any], None]) -> None:
    """Plant in the agents that run now, and in those that are started later."""
    for agent in world.agents.values():
        hook(agent.core)
    boot = world._boot

    def booted(number: int, count: int) -> None:
        boot(number, count)
        hook(world.agents[number].core)

    world._boot = booted  # type: ignore[method-assign]


def _regions_of(world: World) -> RegionPool:
    pool = world.table.regions
    assert pool is not None
    return pool


def _written_region_used_again(world: World) -> None:
    pool = _regions_of(world)
    retire = pool.retire

    def at_once(region: Region, *, viewed: bool) -> None:
        region.users.clear()
        retire(region, viewed=viewed)

    pool.retire = at_once  # type: ignore[method-assign]


def _stopped_kernel_has_ended(world: World) -> None:
    answer, refuse = world.core._answer, world.core._refuse_result

    def answered(session: Any, dispatch: Any, *, ended: bool = True, keep_outputs: bool = False) -> None:
        answer(session, dispatch, keep_outputs=keep_outputs)

    def refused(session: Any, message: Result, now: float) -> None:
        refuse(session, message, now)
        _regions_of(world).ended(message.fence)

    world.core._answer = answered  # type: ignore[method-assign]
    world.core._refuse_result = refused  # type: ignore[method-assign]


def _staged_used_again_at_once(world: World) -> None:
    pool = _regions_of(world)

    def unstage(buffer: int) -> None:
        known = pool.staging._staged.pop(buffer, None)
        if known is not None:
            known[1].users.clear()
            pool.retire(known[1], viewed=False)

    pool.staging.unstage = unstage  # type: ignore[method-assign]


def _lost_session_returns_loans(world: World) -> None:
    staging = _regions_of(world).staging

    def ended(session: int) -> None:
        for transfer in list(staging._lent.get(session, ())):
            staging.returned(session, transfer)

    staging.session_ended = ended  # type: ignore[method-assign]


def _loan_ends_with_the_piece(world: World) -> None:
    def hook(core: Any) -> None:
        memory = core._memory

        def borrow(segment: tuple[str, int], nbytes: int, loan: tuple[int, int]) -> Piece | None:
            view = memory._mappings.view(segment, nbytes, writable=False)
            if view is None:
                return None
            piece = Piece(view, segment)
            memory._borrowed.add(loan)
            weakref.finalize(piece, memory._give_back, loan)
            return piece

        memory.borrow = borrow

    _every_agent(world, hook)


MUTANTS: dict[str, Callable[[World], None]] = {
    "older_fence_accepted": _older_fence_accepted,
    "fence_constant_per_call": _fence_constant_per_call,
    "late_result_applied": _late_result_applied,
    "hello_once": _hello_once,
    "current_bytes_for_any_version": _current_bytes_for_any_version,
    "dedupe_by_call_alone": _dedupe_by_call_alone,
    "cache_by_buffer_alone": _cache_by_buffer_alone,
    "no_war_edges": _no_war_edges,
    "no_deadline_no_inventory": _no_deadline_no_inventory,
    "finished_jobs_listed": _finished_jobs_listed,
    "partial_commit": _partial_commit,
    "in_out_in_place": _in_out_in_place,
}
SHARED_MUTANTS: dict[str, Callable[[World], None]] = {
    "written_region_used_again": _written_region_used_again,
    "stopped_kernel_has_ended": _stopped_kernel_has_ended,
    "staged_used_again_at_once": _staged_used_again_at_once,
    "lost_session_returns_loans": _lost_session_returns_loans,
    "loan_ends_with_the_piece": _loan_ends_with_the_piece,
}
"""Bugs of shared memory: their plans have one host."""


def plant(world: World, name: str) -> None:
    """Plant one bug."""
    (MUTANTS | SHARED_MUTANTS)[name](world)
