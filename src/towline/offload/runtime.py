"""The arrays and graphs of one process; local until a cluster is entered (section 3, OFF-401)."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Literal, Self

from towline.access.tokens import system_random
from towline.errors.offload import GraphStateError, UnknownKernelError
from towline.offload.graph import Graph
from towline.offload.options import OffloadOptions
from towline.offload.records import CallNumber, GraphResult, OffloadStats, VersionEntry
from towline.offload.registry import DEFAULT_REGISTRY, KernelRegistry

if TYPE_CHECKING:
    from random import Random

    import numpy as np

    from towline.clock import Clock
    from towline.offload.arrays import ArrayLike
    from towline.offload.buffers import Buffer, State
    from towline.offload.cluster import Cluster
    from towline.offload.engine import Engine
    from towline.offload.links import Transport
    from towline.offload.options import OffloadAccess
    from towline.offload.policies import OffloadPolicy
    from towline.offload.processes import ProcessRunner
    from towline.offload.regions import RegionPool
    from towline.offload.summary import CallExplanation
    from towline.offload.work import Runner

log = logging.getLogger("towline.offload")

PREFETCH = 64
"""Runs queued per thread while there are no workers to move them to: one wake-up then serves many."""


class Runtime:
    """The arrays and graphs of one process; local until a cluster is entered.

    Enter it with ``async with``: kernels run in threads and processes that end with it.

    Args:
        kernels: Where names are looked up; None: what ``@kernel`` registered.
        options: See ``OffloadOptions``.
        clock: Not used by the runtime's own waits, which are the loop's; stamps log entries alone.
        random: For jitter, nonces and probes; None: the system's.
    """

    def __init__(
        self,
        *,
        kernels: KernelRegistry | None = None,
        options: OffloadOptions = OffloadOptions(),  # noqa: B008 - frozen
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        # Imported here: a worker loads this file too, for the kernels beside a program, and makes no runtime.
        from towline.offload.buffer_table import BufferTable
        from towline.offload.scheduler import Scheduler

        self._kernels = DEFAULT_REGISTRY if kernels is None else kernels
        self._options = options
        self._clock = clock
        self._random = random if random is not None else system_random()
        self._table = BufferTable(max_buffer_bytes=options.max_buffer_bytes, digests=options.verify == "full")
        self._scheduler = Scheduler(self._table, local_slots=options.slots_here, prefetch=PREFETCH)
        self._engine: Engine | None = None
        self._processes: ProcessRunner | None = None
        self._regions: RegionPool | None = None
        self._threads: Runner | None = None
        self._cluster: Cluster | None = None
        self._last_stats = OffloadStats()

    async def __aenter__(self) -> Self:
        """Make the runtime ready to execute graphs."""
        self._enter()
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close it."""
        await self.close()

    def _enter(self) -> None:
        from towline.offload.engine import Engine
        from towline.offload.threads import ThreadRunner

        if self._engine is not None:
            raise GraphStateError("runtime", "enter", "it is entered already")
        loop = asyncio.get_running_loop()
        threads = ThreadRunner(loop, self._options.slots_here, self._scheduler.slot_lost)
        monitor = None
        if self._options.verify != "off":
            from towline.offload.monitor import Monitor

            monitor = Monitor()
        self._threads = threads
        self._table.now = loop.time
        self._engine = Engine(
            self._scheduler,
            loop,
            threads,
            self._process_runner,
            min_offload_bytes=self._options.min_offload_bytes,
            monitor=monitor,
        )

    def buffer(
        self,
        source: ArrayLike,
        *,
        name: str | None = None,
        storage: Literal["bound", "owned"] = "bound",
        shared: bool = False,
    ) -> Buffer:
        """Register an array. ``bound``: it is the storage and receives each commit. ``owned``: a copy is.

        The same array gives the same buffer. ``shared`` keeps each version in shared memory, where workers of
        this host read and write it in place.

        Raises:
            BufferTypeError: It holds objects, is not contiguous, or overlaps another buffer.
        """
        if storage not in ("bound", "owned"):
            raise ValueError(f"storage is {storage!r}; use 'bound' or 'owned'")
        self._prepare_shared(shared)
        return self._table.register(source, name=name, owned=storage == "owned", shared=shared)

    def zeros(
        self,
        shape: int | tuple[int, ...],
        dtype: np.dtype[Any] | type[np.generic] | str,
        *,
        name: str | None = None,
        shared: bool = False,
    ) -> Buffer:
        """Register a new array of zeros, owned by the runtime."""
        self._prepare_shared(shared)
        return self._table.zeros(shape, dtype, name=name, shared=shared)

    def state(self, source: ArrayLike, *, name: str | None = None, shared: bool = False) -> State:
        """Register a stepped field: ``read`` starts as a copy of the source, ``write`` as zeros."""
        self._prepare_shared(shared)
        return self._table.state(source, name=name, shared=shared)

    def graph(self, name: str | None = None) -> Graph:
        """Begin a graph."""
        return Graph(self, name)

    def cluster(
        self, transport: Transport, *, policy: OffloadPolicy | None = None, access: OffloadAccess | None = None
    ) -> Cluster:
        """Make the handle of a cluster; enter it with ``async with``, inside the runtime."""
        from towline.offload.cluster import Cluster

        return Cluster(self, transport, policy=policy, access=access)

    def stats(self) -> OffloadStats:
        """Return the counters (OFF-951)."""
        scheduler = self._scheduler
        core = self._engine.core if self._engine is not None else None
        declined = dict(sorted(scheduler.declined.items()))
        base = OffloadStats(
            offloaded=scheduler.offloaded, declined=sum(declined.values()), declined_by_reason=declined,
            redispatched=scheduler.redispatched, stale_write_backs=scheduler.stale, committed=scheduler.succeeded,
            local_runs=scheduler.local_runs, queued=scheduler.queued, shared_refused=self._table.shared_refused,
        )  # fmt: skip
        if core is None:
            return base
        from msgspec.structs import replace

        return replace(
            base, alive_workers=core.live, bytes_sent=core.bytes_sent, bytes_received=core.bytes_received,
            cache_hits=core.cache_hits, cache_misses=core.cache_misses, resent_results=core.resent_results,
            rejected_frames=core.rejected_frames, in_flight=core.in_flight,
            high_water={f"send:{peer.name or peer.peer}": peer.outgoing.high_water for peer in core.peers.values()},
        )  # fmt: skip

    def explain(self, call: CallNumber) -> CallExplanation:
        """Say why a call ran where it ran; known for the last 4,096 ended calls (OFF-953).

        Raises:
            UnknownKernelError: The number is unknown, or too old.
        """
        engine = self._engine
        found = self._scheduler.calls.get(call) or (engine.ended.get(call) if engine is not None else None)
        if found is None:
            raise UnknownKernelError(
                f"call {call}", " Only the last 4,096 calls are remembered.", len(self._kernels.names())
            )
        if self._cluster is not None and self._cluster._core is not None:
            return self._cluster._core.explanations.about(found)
        from towline.offload.explain import Explanations

        return Explanations().about(found)

    def version_log(self) -> tuple[VersionEntry, ...]:
        """Return what was committed, oldest first; the last 100,000 entries."""
        return tuple(self._table.log)

    async def close(self) -> None:
        """Leave the cluster, stop kernels, give back shared memory; twice does no harm."""
        if self._cluster is not None:
            await self._cluster.close()
        engine, self._engine = self._engine, None
        if engine is not None:
            for run in {id(call.run): call.run for call in self._scheduler.calls.values()}.values():
                engine.cancel(run)
        if self._threads is not None:
            self._threads.close()
        if self._processes is not None:
            self._processes.close()
            self._processes = None
        if self._regions is not None:
            self._table.close()
            self._regions.close()
            self._regions = self._table.regions = None

    def _running_engine(self, graph: str) -> Engine:
        if self._engine is None:
            raise GraphStateError(
                graph, "execute", "its runtime is not entered (use `async with Runtime() as runtime`)"
            )
        return self._engine

    def _live_workers(self) -> int:
        core = self._engine.core if self._engine is not None else None
        return core.live if core is not None else 0

    def _check_fenced(self) -> None:
        """Raise what stopped every graph: a broken invariant, or a lease that was lost (OFF-906, OFF-955)."""
        if self._engine is not None and self._engine.failure is not None:
            raise self._engine.failure
        core = self._engine.core if self._engine is not None else None
        if core is not None and core.lost_lease is not None:
            from towline.errors.coordination import LeaseLostError

            task, held, current = (*core.lost_lease.rsplit(" ", 2), "0", "0")[:3]
            raise LeaseLostError(task, int(held), int(current))

    def _log_result(self, result: GraphResult) -> None:
        if result.declined and not result.offloaded and self._cluster is not None:
            log.info("%s", result.summary())

    def _prepare_shared(self, shared: bool) -> None:
        if shared and self._options.shm:
            self._table.regions = self._region_pool()
        elif shared and self._table.shared_refused is None:
            self._table.shared_refused = "shared memory is switched off (shm)"
            log.info("shared buffers are private: %s", self._table.shared_refused)

    def _region_pool(self) -> RegionPool:
        if self._regions is None:
            from towline.offload.regions import RegionPool, sweep

            sweep()
            self._regions = RegionPool()
        return self._regions

    def _process_runner(self) -> Runner:
        if self._processes is None:
            from towline.offload.processes import ProcessRunner

            self._processes = ProcessRunner(
                asyncio.get_running_loop(), self._options.slots_here, self._region_pool(), self._options.blas_threads
            )
        return self._processes
