"""What ``ctx.offload`` gives a module: a runtime whose cluster is the run's other nodes (OFF-901 to OFF-910)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal, Protocol

from towline.offload.cluster import Cluster
from towline.offload.options import OffloadOptions
from towline.offload.runtime import Runtime

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np

    from towline.offload.arrays import ArrayLike
    from towline.offload.buffers import Buffer, State
    from towline.offload.graph import Graph
    from towline.offload.links import Link
    from towline.offload.options import OffloadAccess
    from towline.offload.records import CallExplanation, CallNumber, OffloadEvent, OffloadStats
    from towline.offload.registry import KernelRegistry


class OffloadDoor(Protocol):
    """What ``ctx.offload`` offers: a runtime whose cluster is the run's other nodes."""

    def buffer(
        self,
        source: ArrayLike,
        *,
        name: str | None = None,
        storage: Literal["bound", "owned"] = "bound",
        shared: bool = False,
    ) -> Buffer:
        """Register an array."""
        ...

    def zeros(
        self,
        shape: int | tuple[int, ...],
        dtype: np.dtype[Any] | type[np.generic] | str,
        *,
        name: str | None = None,
        shared: bool = False,
    ) -> Buffer:
        """Register an array of zeros."""
        ...

    def state(self, source: ArrayLike, *, name: str | None = None, shared: bool = False) -> State:
        """Register a stepped field."""
        ...

    def graph(self, name: str | None = None) -> Graph:
        """Begin a graph."""
        ...

    def stats(self) -> OffloadStats:
        """Return the counters."""
        ...

    def explain(self, call: CallNumber) -> CallExplanation:
        """Say why a call ran where it ran."""
        ...

    async def wait_for_workers(self, count: int, *, timeout_s: float = 60.0) -> int:
        """Wait until so many workers are live."""
        ...


class NoListener:
    """A transport that neither listens nor dials: the links of a pipeline's cluster come from ``Cluster.dial``."""

    async def start(self, on_link: Callable[[Link], None]) -> None:
        """There is nothing to start."""

    async def close(self) -> None:
        """There is nothing to close."""


class PipelineOffload:
    """The door of one attempt. Made with the attempt, entered before the body runs, closed with it.

    Args:
        endpoints: Agents of the other nodes that were alive when the task was enqueued (OFF-903).
        options: From the pipeline's settings.
        access: The run's own token; the module never sees it (OFF-910).
        program: Fingerprint that agents must share (OFF-905).
        task, epoch: The claim; an agent that saw a higher epoch refuses this session (OFF-906).
        on_event: Where the composition root forwards events to the run (OFF-909).
        kernels: Where names are looked up; None: what ``@kernel`` registered.
    """

    def __init__(
        self, *, endpoints: Sequence[str] = (), options: OffloadOptions | None = None, access: OffloadAccess | None = None,
        program: str | None = None, task: str | None = None, epoch: int | None = None,
        on_event: Callable[[OffloadEvent], None] | None = None,
        kernels: KernelRegistry | None = None,
    ) -> None:  # fmt: skip
        self._runtime = Runtime(kernels=kernels, options=options if options is not None else OffloadOptions())
        self._endpoints = tuple(endpoints)
        self._cluster = Cluster(
            self._runtime, NoListener(), policy=None, access=access, program=program, task=task, epoch=epoch
        )
        self._joining: asyncio.Task[None] | None = None
        if on_event is not None:
            self._cluster.on_event(on_event)

    def begin(self) -> None:
        """Make graphs executable at once. With endpoints, a cluster is joined meanwhile; it serves calls from then on."""
        self._runtime._enter()
        if self._endpoints and self._runtime._options.enabled:
            self._joining = asyncio.get_running_loop().create_task(self._join())

    async def open(self) -> None:
        """Begin, and dial the endpoints. One that cannot be reached costs one log line."""
        self.begin()
        if self._joining is not None:
            await self._joining

    async def _join(self) -> None:
        await self._cluster.__aenter__()
        for endpoint in self._endpoints:
            self._cluster.dial(endpoint)

    async def close(self) -> None:
        """End with the attempt: nothing is committed afterwards (OFF-907).

        Raises:
            KernelDeclarationError: The cluster could not be joined, because a probe fails on this node.
        """
        joining, self._joining = self._joining, None
        if joining is not None and not joining.done():
            joining.cancel()
            await asyncio.wait([joining])
        await self._runtime.close()
        if joining is not None and not joining.cancelled():
            joining.result()

    def buffer(
        self,
        source: ArrayLike,
        *,
        name: str | None = None,
        storage: Literal["bound", "owned"] = "bound",
        shared: bool = False,
    ) -> Buffer:
        """Register an array."""
        return self._runtime.buffer(source, name=name, storage=storage, shared=shared)

    def zeros(
        self,
        shape: int | tuple[int, ...],
        dtype: np.dtype[Any] | type[np.generic] | str,
        *,
        name: str | None = None,
        shared: bool = False,
    ) -> Buffer:
        """Register an array of zeros."""
        return self._runtime.zeros(shape, dtype, name=name, shared=shared)

    def state(self, source: ArrayLike, *, name: str | None = None, shared: bool = False) -> State:
        """Register a stepped field."""
        return self._runtime.state(source, name=name, shared=shared)

    def graph(self, name: str | None = None) -> Graph:
        """Begin a graph."""
        return self._runtime.graph(name)

    def stats(self) -> OffloadStats:
        """Return the counters."""
        return self._runtime.stats()

    def explain(self, call: CallNumber) -> CallExplanation:
        """Say why a call ran where it ran."""
        return self._runtime.explain(call)

    async def wait_for_workers(self, count: int, *, timeout_s: float = 60.0) -> int:
        """Wait until so many workers are live; raises ``OffloadUnavailableError`` when the time is over."""
        if self._joining is not None:
            await asyncio.shield(self._joining)
        return await self._cluster.wait_for_workers(count, timeout_s=timeout_s)
