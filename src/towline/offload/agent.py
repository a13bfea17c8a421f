"""A kernel worker inside a program: connects or listens, runs what masters ask for, ends in order (sections 3, 7.6)."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING

from towline.access.addresses import check_listener
from towline.access.tokens import system_random
from towline.offload.numeric import limit_blas_threads, numeric_fingerprint
from towline.offload.options import AgentOptions
from towline.offload.pieces import PrivateMemory
from towline.offload.records import AgentEnd

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from towline.clock import Clock
    from towline.offload.agent_shell import AgentShell
    from towline.offload.links import Link, Transport
    from towline.offload.options import OffloadAccess
    from towline.offload.processes import ProcessRunner
    from towline.offload.regions import RegionPool
    from towline.offload.registry import KernelRegistry
    from towline.offload.work import Runner


class WorkerAgent:
    """A kernel worker inside a program of yours.

    Args:
        transport: ``TcpTransport.connect`` to dial one master, ``.listen`` to serve any number.
        kernels: What it can run.
        options: How much of the machine it gives.
        access: Token and TLS files.
        name: Unique among the workers of a master; None: host and process id.
        clock: Not used for waits, which are the loop's.
        random: For nonces and jitter; None: the system's.
        program: Fingerprint that the master must share (OFF-905).
        mask: Applied to every text of an error before it leaves.
    """

    def __init__(
        self, transport: Transport, kernels: KernelRegistry, *, options: AgentOptions = AgentOptions(),  # noqa: B008 - frozen
        access: OffloadAccess | None = None, name: str | None = None, clock: Clock | None = None, random: Random | None = None,
        program: str | None = None, mask: Callable[[str], str] | None = None,
    ) -> None:  # fmt: skip
        self._transport, self._kernels, self._options, self._access = transport, kernels, options, access
        self._name = name or f"{socket.gethostname()}-{os.getpid()}"
        self._random = random if random is not None else system_random()
        self._program, self._mask = program, mask
        self._shell: AgentShell | None = None
        self._ended: asyncio.Future[AgentEnd] | None = None
        self._threads: Runner | None = None
        self._processes: ProcessRunner | None = None
        self._regions: RegionPool | None = None
        self._dialling: set[asyncio.Task[None]] = set()

    @property
    def name(self) -> str:
        """What masters call this worker."""
        return self._name

    @property
    def endpoint(self) -> str:
        """``HOST:PORT`` of a listening agent, with the port that was taken."""
        return str(getattr(self._transport, "endpoint", ""))

    async def start(self) -> None:
        """Begin to listen or to dial; a second start changes nothing.

        Raises:
            ConfigurationError: Listening beyond this machine without a token.
            OSError: The address cannot be used.
        """
        if self._shell is not None:
            return
        # Imported here, like the master's half in ``Cluster``: a process is mostly one of the two.
        from towline.offload.agent_shell import AgentShell
        from towline.offload.threads import ThreadRunner
        from towline.offload.worker_core import WorkerCore

        loop = asyncio.get_running_loop()
        token = self._access.token if self._access is not None else ""
        listens = bool(getattr(self._transport, "listens", False))
        if self._access is not None and hasattr(self._transport, "access"):
            self._transport.access = self._access
        if listens:
            host = str(getattr(self._transport, "host", ""))
            check_listener(
                host, token, flag="--token-file", variable="TOWLINE_TOKEN", setting="OffloadAccess(token=...)"
            )
        options = self._options
        limit_blas_threads(options.blas_threads)
        memory = self._memory()
        core = WorkerCore(
            self._name, self._kernels, options, memory, self._random, token=token, host_id=self._host_id(),
            numeric=numeric_fingerprint(options.blas_threads), mem_total=memory_bytes("MemTotal"), program=self._program,
            dials=not listens, shm_trial=self._regions.trial() if self._regions is not None else "",
        )  # fmt: skip
        core.mem_free = lambda: memory_bytes("MemAvailable")
        self._threads = ThreadRunner(loop, options.slots_here, core.slot_lost)
        self._ended = loop.create_future()
        self._shell = AgentShell(
            core, loop, memory, self._runner, dial=self._dial, on_end=self._on_end, mask=self._mask
        )
        if listens:
            await self._transport.start(self._shell.add_link)
        self._shell.start()
        if any(self._kernels.get(kernel).executor == "process" for kernel in self._kernels.names()):
            self._process_runner().warm()

    async def serve(self) -> AgentEnd:
        """Wait until the agent has ended, and say why; starts it if that was not done."""
        await self.start()
        assert self._ended is not None
        try:
            return await asyncio.shield(self._ended)
        finally:
            await self.stop()

    async def drain(self) -> None:
        """Take no new calls, let running ones end for at most ``drain_timeout_s``, then leave (OFF-618)."""
        if self._shell is None or self._ended is None:
            return
        self._shell.core.drain(asyncio.get_running_loop().time())
        self._shell.settle()
        await asyncio.shield(self._ended)

    async def stop(self) -> None:
        """Stop at once; twice, or before the start, does no harm."""
        shell, self._shell = self._shell, None
        if shell is None:
            return
        shell.stop("the agent was stopped")
        for task in list(self._dialling):
            task.cancel()
        await asyncio.gather(*self._dialling, return_exceptions=True)
        await self._transport.close()
        for runner in (self._threads, self._processes):
            if runner is not None:
                runner.close()
        if self._regions is not None:
            self._regions.close()
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(AgentEnd(code=0, reason="stopped"))

    def _memory(self) -> PrivateMemory:
        if not self._options.shm or not os.path.isdir("/dev/shm"):
            return PrivateMemory()
        from towline.offload.regions import RegionPool, sweep
        from towline.offload.segment_memory import SegmentMemory

        sweep()
        self._regions = RegionPool()
        return SegmentMemory(self._regions)

    def _host_id(self) -> str:
        from towline.offload.regions import host_identity

        return host_identity() if self._regions is not None else ""

    def _runner(self, executor: str) -> Runner:
        assert self._threads is not None
        return self._threads if executor == "thread" else self._process_runner()

    def _process_runner(self) -> ProcessRunner:
        if self._processes is None:
            from towline.offload.processes import ProcessRunner
            from towline.offload.regions import RegionPool

            if self._regions is None:
                self._regions = RegionPool()
            self._processes = ProcessRunner(
                asyncio.get_running_loop(), self._options.slots_here, self._regions, self._options.blas_threads
            )
        return self._processes

    def _dial(self, on_link: Callable[[Link], None], on_failed: Callable[[str], None]) -> None:
        async def dial() -> None:
            try:
                await self._transport.start(on_link)
            except OSError as error:
                on_failed(str(error))

        task = asyncio.get_running_loop().create_task(dial())
        self._dialling.add(task)
        task.add_done_callback(self._dialling.discard)

    def _on_end(self, code: int, reason: str) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(AgentEnd(code=code, reason=reason))


def memory_bytes(field: str) -> int:
    """Read a field of /proc/meminfo in bytes; 0 where it is not known."""
    try:
        with open("/proc/meminfo", encoding="ascii") as stream:
            for line in stream:
                if line.startswith(f"{field}:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return 0
    return 0
