"""The workers of one runtime, while it is entered (section 3)."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Self, TypeVar

from towline.access.addresses import check_listener, is_loopback
from towline.errors.offload import GraphStateError, KernelDeclarationError, OffloadUnavailableError
from towline.offload.kernels import KernelFunction, KernelRef
from towline.offload.numeric import limit_blas_threads, numeric_fingerprint
from towline.offload.policies import LeastLoadedPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

    from towline.offload.links import Transport
    from towline.offload.master import MasterCore
    from towline.offload.options import OffloadAccess
    from towline.offload.policies import OffloadPolicy
    from towline.offload.records import (
        CallExplanation,
        CallNumber,
        OffloadEvent,
        OffloadStats,
        VersionEntry,
        WorkerId,
        WorkerView,
    )
    from towline.offload.runtime import Runtime

log = logging.getLogger("towline.offload")

T = TypeVar("T")


class Cluster:
    """The workers of one runtime, while it is entered. Leaving it says BYE; graphs that still execute go on locally."""

    def __init__(
        self, runtime: Runtime, transport: Transport, *, policy: OffloadPolicy | None, access: OffloadAccess | None,
        program: str | None = None, task: str | None = None, epoch: int | None = None,
    ) -> None:  # fmt: skip
        self._runtime, self._transport, self._policy, self._access = runtime, transport, policy, access
        self._program, self._task, self._epoch = program, task, epoch
        self._core: MasterCore | None = None
        self._waiting: list[tuple[int, asyncio.Future[int]]] = []
        self._listeners: list[Callable[[OffloadEvent], None]] = []
        self._dialling: dict[str, asyncio.Task[None]] = {}
        self._transports: list[Transport] = []

    async def __aenter__(self) -> Self:
        """Begin to listen, or to dial.

        Raises:
            GraphStateError: The runtime is not entered, or has a cluster already.
            ConfigurationError: Listening beyond this machine without a token (OFF-801).
            OSError: The address cannot be used.
        """
        runtime = self._runtime
        if runtime._engine is None or runtime._cluster is not None:
            problem = "its runtime is not entered" if runtime._engine is None else "the runtime has a cluster already"
            raise GraphStateError("cluster", "enter", problem)
        runtime._cluster = self
        if not runtime._options.enabled:
            return self
        try:
            await self._open()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close it."""
        await self.close()

    @property
    def endpoint(self) -> str:
        """``HOST:PORT`` in use, for a transport that listens; else an empty text (OFF-623)."""
        return str(getattr(self._transport, "endpoint", ""))

    async def wait_for_workers(self, count: int, *, timeout_s: float = 60.0) -> int:
        """Wait until so many workers are live; returns how many are.

        Raises:
            OffloadUnavailableError: The time is over.
        """
        live = self._live()
        if live >= count:
            return live
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[int] = loop.create_future()
        self._waiting.append((count, ready))
        timer = loop.call_later(timeout_s, _settle, ready, -1)
        try:
            live = await ready
        finally:
            timer.cancel()
            self._waiting = [entry for entry in self._waiting if entry[1] is not ready]
        if live < 0:
            raise OffloadUnavailableError(f"{count} workers were waited for", timeout_s, self._live(), self._absent())
        return live

    def dial(self, endpoint: str) -> None:
        """Keep a link to an agent that listens at ``HOST:PORT``; the same endpoint twice is one link.

        Raises:
            ConfigurationError: It is no address.
        """
        from towline.offload.tcp import TcpTransport

        if endpoint not in self._dialling and self._core is not None:
            transport = TcpTransport.connect(endpoint)
            transport.access = self._access
            self._transports.append(transport)
            self._dialling[endpoint] = asyncio.get_running_loop().create_task(self._keep_dialling(endpoint, transport))

    def supports(self, kernel: KernelRef) -> bool:
        """Say whether a live worker has the kernel."""
        name = kernel.kernel.name if isinstance(kernel, KernelFunction) else kernel
        return self._core is not None and self._core.supports(name)

    def workers(self) -> tuple[WorkerView, ...]:
        """Return what is known of each connected worker, by name."""
        return self._core.views() if self._core is not None else ()

    def stats(self) -> OffloadStats:
        """Return the counters (OFF-951)."""
        return self._runtime.stats()

    def explain(self, call: CallNumber) -> CallExplanation:
        """Say why a call ran where it ran."""
        return self._runtime.explain(call)

    def version_log(self) -> tuple[VersionEntry, ...]:
        """Return what was committed, oldest first."""
        return self._runtime.version_log()

    def on_event(self, listener: Callable[[OffloadEvent], None]) -> None:
        """Call ``listener`` with each event, in the loop; one that raises is dropped (OFF-956)."""
        self._listeners.append(listener)
        if self._runtime._engine is not None:
            self._runtime._engine.listeners.append(listener)

    async def drain(self, worker: WorkerId) -> None:
        """Give a worker no new calls, and wait until it has left, for at most ``drain_timeout_s``.

        Raises:
            OffloadUnavailableError: Nobody has that name.
        """
        engine, core = self._runtime._engine, self._core
        loop = asyncio.get_running_loop()
        if engine is None or core is None or not core.drain(worker, loop.time()):
            raise OffloadUnavailableError(f"Worker {worker!r} was to be drained", 0.0, self._live())
        left: asyncio.Future[None] = loop.create_future()

        def look() -> None:
            if not left.done() and worker not in {view.worker for view in core.views()}:
                left.set_result(None)

        timer = loop.call_later(self._runtime._options.drain_timeout_s + 3.0, _settle, left, None)
        engine.on_change.append(look)
        engine.settle()
        try:
            await left
        finally:
            timer.cancel()
            engine.on_change.remove(look)

    async def close(self) -> None:
        """Say BYE and close all links; twice does no harm."""
        runtime = self._runtime
        if runtime._cluster is not self:
            return
        runtime._cluster = None
        for task in self._dialling.values():
            task.cancel()
        await asyncio.gather(*self._dialling.values(), return_exceptions=True)
        engine = runtime._engine
        if engine is not None and self._core is not None:
            engine.detach()
            engine.on_change[:] = [listener for listener in engine.on_change if listener != self._look]
            for listener in self._listeners:
                if listener in engine.listeners:
                    engine.listeners.remove(listener)
        for transport in (self._transport, *self._transports):
            await transport.close()
        for _, ready in self._waiting:
            if not ready.done():
                ready.set_result(-1)

    async def _open(self) -> None:
        runtime, options = self._runtime, self._runtime._options
        engine = runtime._engine
        assert engine is not None
        token = self._access.token if self._access is not None else ""
        self._check_address(token)
        limit_blas_threads(options.blas_threads)
        regions = runtime._region_pool() if options.shm else None
        runtime._table.regions = regions
        from towline.offload.master import MasterCore
        from towline.offload.regions import host_identity

        core = MasterCore(
            runtime._scheduler, options, runtime._kernels, self._policy or LeastLoadedPolicy(), runtime._random,
            run=runtime._random.randbytes(16), host_id=host_identity(), numeric=numeric_fingerprint(options.blas_threads),
            token=token, program=self._program, task=self._task, epoch=self._epoch, regions=regions,
        )  # fmt: skip
        await self._prepare_probes(core)
        self._core = core
        engine.listeners.extend(self._listeners)
        engine.on_change.append(self._look)
        engine.attach(core)
        await self._transport.start(engine.add_link)

    def _check_address(self, token: str) -> None:
        host = getattr(self._transport, "host", None)
        if host is None:
            return
        if self._access is not None:
            self._transport.access = self._access  # type: ignore[attr-defined]  # a TcpTransport has it
        if getattr(self._transport, "listens", False):
            check_listener(
                host, token, flag="--token-file", variable="TOWLINE_TOKEN", setting="OffloadAccess(token=...)"
            )
        if not is_loopback(host) and not (self._access is not None and self._access.uses_tls):
            log.warning(
                "offload: %s is beyond this machine and its links are not encrypted; set tls_cert or tls_ca", host
            )

    async def _prepare_probes(self, core: MasterCore) -> None:
        """Run each probe here, in a thread: what workers will be compared with."""
        from towline.offload.probing import run_probe

        loop = asyncio.get_running_loop()
        registry = self._runtime._kernels
        for name in registry.names():
            if registry.function(name).probe is None:
                continue
            try:
                found = await loop.run_in_executor(None, run_probe, registry, name, core.prober.seed)
            except Exception as error:
                raise KernelDeclarationError(name, "probe", f"fails here: {type(error).__name__}: {error}") from error
            if found is not None:
                core.probe_ready(name, *found)

    async def _keep_dialling(self, endpoint: str, transport: Transport) -> None:
        """Dial until it works, and again when the link is lost; pauses grow to ``reconnect_max_s``."""
        options, engine = self._runtime._options, self._runtime._engine
        assert engine is not None
        wait = options.reconnect_s
        told = False
        while True:
            before = set(self._core.peers) if self._core is not None else set()
            try:
                await transport.start(engine.add_link)
            except OSError as error:
                if not told:
                    log.warning("offload: the agent at %s cannot be reached: %s", endpoint, error)
                    told = True
            else:
                wait = options.reconnect_s
                mine = set(self._core.peers) - before if self._core is not None else set()
                await self._link_lost(mine)
            await asyncio.sleep(wait * (0.5 + self._runtime._random.random() / 2))
            wait = min(wait * 2, options.reconnect_max_s)

    async def _link_lost(self, mine: set[int]) -> None:
        """Wait until none of these links is left."""
        engine, core = self._runtime._engine, self._core
        if engine is None or core is None:
            return
        gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def look() -> None:
            if not mine & set(core.peers):
                _settle(gone, None)

        engine.on_change.append(look)
        look()
        try:
            await gone
        finally:
            engine.on_change.remove(look)

    def _live(self) -> int:
        return self._core.live if self._core is not None else 0

    def _absent(self) -> tuple[str, ...]:
        return tuple(f"{view.worker} is {view.state}" for view in self.workers() if view.state != "live")

    def _look(self) -> None:
        if not self._waiting:
            return
        live = self._live()
        for count, ready in self._waiting:
            if live >= count and not ready.done():
                ready.set_result(live)


def _settle(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)
