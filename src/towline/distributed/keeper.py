"""Heartbeats: the one sign of life of a worker, kept apart from what may block its loop (DIST-21, RUN-29)."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Protocol

from towline.coordination.records import LeaseRef, WorkerStatus
from towline.errors.coordination import CoordinationError, RunUnknownError, SessionEndedError, SessionReplacedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from towline.coordination.contract import MasterCoordinator, WorkerCoordinator
    from towline.coordination.records import HeartbeatReply, WorkerRegistration


class KeeperHost(Protocol):
    """Who is told what heartbeats say; called in the loop's thread of the worker."""

    def heard(self, reply: HeartbeatReply) -> None:
        """A heartbeat was answered."""
        ...

    def replaced(self, error: CoordinationError) -> None:
        """The session belongs to another process, or the server is lost: this worker is at its end."""
        ...


class HeldLeases:
    """The leases from their claim to the reply of their publication; used from two threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._leases: dict[tuple[str, int], LeaseRef] = {}

    def add(self, lease: LeaseRef) -> None:
        """List a lease with every heartbeat from now on."""
        with self._lock:
            self._leases[lease.task_id, lease.epoch] = lease

    def drop(self, lease: LeaseRef) -> None:
        """Do not list it any more."""
        with self._lock:
            self._leases.pop((lease.task_id, lease.epoch), None)

    def all(self) -> tuple[LeaseRef, ...]:
        """Return them in the order in which they were added."""
        with self._lock:
            return tuple(self._leases.values())


class Keeper:
    """Beats for a worker, and for the master when ``beat`` is given, every ``interval_s``."""

    def __init__(
        self,
        registration: WorkerRegistration,
        held: HeldLeases,
        host: KeeperHost,
        *,
        interval_s: float,
        beat: Callable[[Any], Awaitable[object]] | None = None,
    ) -> None:
        self._registration, self._held, self._host = registration, held, host
        self._interval_s, self._beat = interval_s, beat

    async def keep(self, coordinator: WorkerCoordinator, call: Callable[..., object]) -> None:
        """Beat until cancelled, or until the session is no longer ours. ``call`` runs a function in the host's loop."""
        while True:
            try:
                reply = await self._once(coordinator)
            except SessionReplacedError as error:
                call(self._host.replaced, error)
                return
            except CoordinationError as error:
                call(self._host.replaced, error)
                return
            if reply is not None:
                call(self._host.heard, reply)
            await asyncio.sleep(self._interval_s)

    async def _once(self, coordinator: WorkerCoordinator) -> HeartbeatReply | None:
        if self._beat is not None:
            await self._beat(coordinator)
        held = self._held.all()
        registration = self._registration
        status = WorkerStatus(worker_id=registration.worker_id, session=registration.session, in_flight=held)
        try:
            return await coordinator.heartbeat(status)
        except RunUnknownError:
            return None  # the server lost the run; the worker waits for the master to open it anew
        except SessionEndedError as error:
            if error.expelled:
                raise
            # Silent for too long: come back with what is still held; the next heartbeat tells what is lost of it.
            from msgspec.structs import replace

            await coordinator.register(replace(registration, held=held))
        try:
            return await coordinator.heartbeat(status)
        except SessionEndedError as error:
            if error.expelled:
                raise
            return None  # it was stopped between the two for as long again: the next heartbeat comes back once more


class KeeperTask:
    """A keeper in the worker's own loop: for tests in virtual time, where nothing blocks it."""

    def __init__(self, keeper: Keeper, coordinator: WorkerCoordinator) -> None:
        self._keeper, self._coordinator = keeper, coordinator
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to beat."""
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(
            self._keeper.keep(self._coordinator, lambda call, *arguments: call(*arguments)), name="towline-keeper"
        )

    async def stop(self) -> None:
        """Stop beating; twice without harm."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])


class KeeperThread:
    """A keeper with a thread, a loop and a coordinator of its own: a body that blocks the loop costs no lease."""

    def __init__(self, keeper: Keeper, create: Callable[[], Awaitable[MasterCoordinator | WorkerCoordinator]]) -> None:
        self._keeper, self._create = keeper, create
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._started = threading.Event()

    def start(self) -> None:
        """Begin to beat."""
        host_loop = asyncio.get_running_loop()

        def call(function: Callable[..., object], *arguments: object) -> None:
            try:
                host_loop.call_soon_threadsafe(function, *arguments)
            except RuntimeError:
                return  # the host's loop is closed: nobody is left to be told

        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._run(call)), name="towline-heartbeats", daemon=True
        )
        self._thread.start()

    async def _run(self, call: Callable[..., object]) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        self._started.set()
        coordinator = await self._create()
        keeping = asyncio.ensure_future(self._keeper.keep(coordinator, call))
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait([keeping, stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (keeping, stopping):
                task.cancel()
            await asyncio.wait([keeping, stopping])
            await coordinator.aclose()

    async def stop(self) -> None:
        """Stop beating and join the thread; twice without harm."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._started.wait()
        if self._loop is not None and self._stopping is not None and thread.is_alive():
            try:
                self._loop.call_soon_threadsafe(self._stopping.set)
            except RuntimeError:
                pass  # it ended by itself in this moment
        await asyncio.to_thread(thread.join)
