"""A worker: claims, executes, publishes; one session in one run (DIST-15 to 26)."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Protocol

from towline.coordination.records import Closed, Lease, NoWork, WorkerStatus
from towline.coordination.signals import Signal
from towline.distributed.worker_session import WorkerSession
from towline.errors.coordination import (
    CoordinationError,
    CoordinatorClosedError,
    CoordinatorLostError,
    MasterLostError,
    RunUnknownError,
    SessionEndedError,
    SessionReplacedError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from towline.coordination.contract import WorkerCoordinator
    from towline.coordination.records import (
        ClaimReply,
        HeartbeatReply,
        OutcomeRecord,
        PublishReply,
        WorkerRegistration,
    )
    from towline.distributed.keeper import HeldLeases
    from towline.distributed.slots import Slots
    from towline.distributed.spool import Spool

_log = logging.getLogger("towline.worker")

CLAIM_PAUSE_S, LONGEST_CLAIM_PAUSE_S = 0.1, 2.0
EVENTS_INTERVAL_S = 0.5

_HOPELESS = (CoordinatorLostError, CoordinatorClosedError, MasterLostError, RunUnknownError)
"""What has been waited for long enough already; another error of a claim may pass (DIST-16)."""


class TaskExecutor(Protocol):
    """Runs leased tasks on this node: the same runner as in a local run."""

    def start(self, lease: Lease, ended: Callable[[OutcomeRecord], None]) -> None:
        """Begin a leased task; its outcome goes to ``ended``, once."""
        ...

    def stop(self, lease: Lease, code: str) -> None:
        """Cancel one; ``code`` is the reason of its outcome."""
        ...

    def accepted(self, outcome: OutcomeRecord) -> None:
        """An outcome counts, from here or come along with a lease: what depends on it need not ask the coordinator for it."""
        ...


class _Execution:
    """A lease that this worker works on. ``discarded``: it is lost, its outcome concerns nobody (DIST-22).

    ``is_sent``: its outcome is on its way, and the reply to that decides.
    """

    __slots__ = ("discarded", "is_sent", "lease", "released")

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.discarded = self.released = self.is_sent = False


class Worker:
    """Works in one run until its coordinator says that there is no more to come.

    ``registration`` must be accepted already; :func:`register_when_open` does that. ``shares_slots``: other workers of
    this process take tasks of other runs into the same slots.
    """

    def __init__(
        self,
        coordinator: WorkerCoordinator,
        registration: WorkerRegistration,
        executor: TaskExecutor,
        *,
        slots: Slots,
        spool: Spool,
        held: HeldLeases,
        random: Random | None = None,
        tell: Callable[[str], None] | None = None,
        lost_after_s: float = 60.0,
        shares_slots: bool = False,
    ) -> None:
        self._session = WorkerSession(coordinator, registration, held=held, spool=spool, lost_after_s=lost_after_s)
        self._coordinator, self._executor, self._spool, self._held = coordinator, executor, spool, held
        self._random = random or Random()
        self._lost_after_s = lost_after_s
        self._tell = tell or _log.warning
        self._slots, self._shares_slots = slots, shares_slots
        self._one_claim = asyncio.Lock()
        """A session has one claim at a time (COORD-C35): that of the claim loop, or one that rides on an outcome."""
        self._running: dict[tuple[str, int], _Execution] = {}
        self._publishing: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._draining = asyncio.Event()
        self._closed: str | None = None
        self._fatal: CoordinationError | None = None
        self._signal = Signal.RUNNING
        self._claim_goes_on = ""
        """The token of a claim that rode on an outcome and found nothing; the claim loop goes on with it."""
        self.lost_leases = 0

    # ------------------------------------------------------------------ the outside

    async def run(self) -> str:
        """Work to the end; returns why it ended: ``completed``, ``stopped`` or ``drained``.

        Raises:
            CoordinationError: The session was replaced, or master or coordinator are lost.
        """
        loop = asyncio.get_running_loop()
        helpers = [loop.create_task(self._claim_on()), loop.create_task(self._watch_signal())]
        sending = loop.create_task(self._send_events())
        draining = loop.create_task(self._draining.wait())
        try:
            await asyncio.wait([helpers[0], draining], return_when=asyncio.FIRST_COMPLETED)
            if helpers[0].done():
                helpers[0].result()
            helpers[0].cancel()
            await asyncio.wait([helpers[0]])
            await self._claim_no_more()
            await self._idle.wait()
            if self._fatal is not None:
                raise self._fatal
        finally:
            for task in (*helpers, draining):
                task.cancel()
            await asyncio.wait([*helpers, draining])
            sending.cancel()
            await asyncio.wait([sending])
        await self._flush_events()
        return self._closed or "drained"

    async def say_goodbye(self, commands: dict[str, int], unattributed: int = 0) -> None:
        """Send the final status, with the counters of the run (DIST-26).

        A worker that slept through the end finds nobody who would count them: that is no failure of its own.
        """
        status = WorkerStatus(
            worker_id=self._session.ref.worker_id,
            session=self._session.ref.session,
            is_final=True,
            commands=commands,
            unattributed_commands=unattributed,
        )
        try:
            await self._coordinator.heartbeat(status)
        except (SessionEndedError, RunUnknownError) as error:
            self._tell(f"the run ended without this worker's counts: {error}")

    def drain(self) -> None:
        """Claim nothing more; what runs goes on (DIST-24)."""
        self._draining.set()

    async def give_back(self) -> None:
        """Cancel what still runs and release its leases, so that others take them over at once (DIST-24, COORD-C49)."""
        for execution in list(self._running.values()):
            execution.released = True
            self._executor.stop(execution.lease, "released")
        await self._idle.wait()

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs here."""
        return self._idle.is_set()

    async def wait_until_idle(self) -> None:
        """Return once nothing runs here."""
        await self._idle.wait()

    # ------------------------------------------------------------------ claiming

    async def _claim_on(self) -> None:
        pause_s, failing_since = CLAIM_PAUSE_S, 0.0
        now = asyncio.get_running_loop().time
        while self._closed is None and not self._draining.is_set():
            await self._slots.wait_for_free()
            try:
                async with self._one_claim:
                    if not self._slots.is_free:
                        continue
                    reply = await self._claim_with_slot()
                if isinstance(reply, NoWork):
                    await self._session.insist(partial(self._coordinator.wait_for_work, seen=reply.work_version))
            except SessionReplacedError:
                raise
            except SessionEndedError as error:
                if error.expelled:
                    raise
                await self._session.register_again()
                continue
            except CoordinationError as error:
                failing_since = failing_since or now()
                is_hopeless = isinstance(error, _HOPELESS) or now() - failing_since >= self._lost_after_s
                if self._closed is not None or is_hopeless:
                    raise
                self._tell(f"a claim failed and is repeated: {error}")
                await asyncio.sleep(pause_s * self._random.uniform(0.5, 1.0))
                pause_s = min(2 * pause_s, LONGEST_CLAIM_PAUSE_S)
                continue
            pause_s, failing_since = CLAIM_PAUSE_S, 0.0

    async def _claim_with_slot(self) -> ClaimReply:
        """Claim, waiting for work; where runs share the slots, only ask: the slot is another run's meanwhile (DIST-09)."""
        if not self._shares_slots:
            reply = await self._session.insist(self._claim)
            self._take(reply)
            return reply
        self._slots.take()
        try:
            reply = await self._session.insist(self._claim)
        finally:
            self._slots.give_back()
        self._take(reply)
        await asyncio.sleep(0)  # the next run in turn, also where a claim takes no time
        return reply

    async def _claim(self) -> ClaimReply:
        wait_s = 0.0 if self._shares_slots else None
        token, self._claim_goes_on = self._claim_goes_on or self._session.token(), ""
        return await self._coordinator.claim(self._session.ref, token=token, wait_s=wait_s)

    async def _claim_no_more(self) -> None:
        """Withdraw a claim that rode on an outcome and still stands, when the claim loop will not go on with it."""
        token, self._claim_goes_on = self._claim_goes_on, ""
        if token and self._fatal is None:
            await self._coordinator.withdraw_claim(self._session.ref, token=token)

    def _take(self, reply: ClaimReply) -> None:
        if isinstance(reply, Closed):
            self._closed = reply.why
            if reply.why == "stopped":
                self._on_signal(Signal.STOPPED)
        elif isinstance(reply, Lease):
            if self._draining.is_set():
                self._follow(self._hand_back(reply))
            else:
                self._begin(reply)

    async def _hand_back(self, lease: Lease) -> None:
        """Give back, unbegun, what was granted in the moment in which this worker was told to leave (DIST-24)."""
        if self._fatal is not None:
            return
        try:
            await self._coordinator.release(self._session.ref, lease.ref, started=False)
        except CoordinationError as error:
            self._tell(f"{lease.task_id}, granted to this worker at its end, is queued again by its goodbye: {error}")

    def _begin(self, lease: Lease) -> None:
        execution = _Execution(lease)
        self._running[lease.task_id, lease.epoch] = execution
        self._held.add(lease.ref)
        self._idle.clear()
        self._slots.take()
        for outcome in lease.brought:
            self._executor.accepted(outcome)
        self._executor.start(lease, lambda outcome: self._ended(execution, outcome))
        if self._must_stop(lease):
            self._executor.stop(lease, self._signal.value)

    # ------------------------------------------------------------------ publishing

    def _ended(self, execution: _Execution, outcome: OutcomeRecord) -> None:
        self._follow(self._publish(execution, outcome))

    def _follow(self, last_words: Coroutine[Any, Any, None]) -> None:
        """Let the coordinator be told about a lease; this worker is not idle before."""
        self._idle.clear()
        task = asyncio.get_running_loop().create_task(last_words)
        self._publishing.add(task)
        task.add_done_callback(self._published)

    def _published(self, task: asyncio.Task[None]) -> None:
        self._publishing.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error if isinstance(error, CoordinationError) else CoordinationError(str(error)))
        if not self._running and not self._publishing:
            self._idle.set()

    async def _publish(self, execution: _Execution, outcome: OutcomeRecord) -> None:
        lease = execution.lease
        try:
            if execution.released and outcome.state == "cancelled":
                await self._session.insist(
                    lambda: self._coordinator.release(self._session.ref, lease.ref, started=True)
                )
            elif not execution.discarded:
                execution.is_sent = True
                await self._hand_over(execution, outcome)
        finally:
            self._forget(execution)

    def _forget(self, execution: _Execution) -> None:
        """Free the slot of an execution whose outcome was taken; twice without harm."""
        lease = execution.lease
        self._held.drop(lease.ref)
        if self._running.pop((lease.task_id, lease.epoch), None) is not None:
            self._slots.give_back()

    async def _hand_over(self, execution: _Execution, outcome: OutcomeRecord) -> None:
        """Publish with the remaining events, and take the next task in the same step when no other claim is pending."""
        lease, events = execution.lease, self._spool.unsent()
        # Where runs share the slots, the next run in turn gets this one: no claim rides along (DIST-09).
        is_claiming = self._one_claim.locked() or bool(self._claim_goes_on)
        claims_on = not self._draining.is_set() and not is_claiming and not self._shares_slots
        if self._closed is not None or not claims_on:
            published = await self._session.insist(
                lambda: self._coordinator.publish_outcome(outcome, lease=lease.ref, events=events)
            )
            self._note(published, outcome)
            return
        async with self._one_claim:
            token = self._session.token()
            published, reply = await self._session.insist(
                lambda: self._coordinator.publish_and_claim(
                    outcome, lease=lease.ref, events=events, worker=self._session.ref, token=token
                )
            )
            self._note(published, outcome)
            self._forget(execution)
            self._claim_goes_on = token if isinstance(reply, NoWork) else ""
            self._take(reply)
            if self._draining.is_set():
                await self._claim_no_more()

    def _note(self, published: PublishReply, outcome: OutcomeRecord) -> None:
        if published.accepted:
            self._executor.accepted(outcome)

    # ------------------------------------------------------------------ what is heard

    async def _watch_signal(self) -> None:
        while self._signal is not Signal.STOPPED:
            try:
                signal = await self._session.insist(lambda: self._coordinator.wait_for_signal(seen=self._signal))
            except CoordinationError as error:
                self._fail(error)
                return
            self._on_signal(signal)

    def _on_signal(self, signal: Signal) -> None:
        """Cancel what the signal concerns (DIST-23)."""
        if signal <= self._signal:
            return
        self._signal = signal
        for execution in list(self._running.values()):
            if self._must_stop(execution.lease):
                self._executor.stop(execution.lease, signal.value)

    def _must_stop(self, lease: Lease) -> bool:
        if self._signal is Signal.PIPELINE_FAILED:
            return not lease.assignment.always_run
        return self._signal is Signal.STOPPED

    def heard(self, reply: HeartbeatReply) -> None:
        """Drop what is lost, obey the signal (DIST-22, DIST-25)."""
        for lost in reply.lost:
            execution = self._running.get((lost.task_id, lost.epoch))
            # A reply that a silent server kept back: its own outcome is there already, and nothing is dropped.
            is_own = execution is not None and execution.is_sent and lost.why == "finished"
            if execution is not None and not execution.discarded and not is_own:
                execution.discarded = True
                self.lost_leases += 1
                self._tell(
                    f"the lease of {lost.task_id} (epoch {lost.epoch}) is lost ({lost.why}); its work is dropped"
                )
                self._executor.stop(execution.lease, "lease_lost")
        self._on_signal(reply.signal)

    def drop_leftovers(self) -> None:
        """The run is over, every task final: what still runs here concerns nobody (DIST-25)."""
        for execution in list(self._running.values()):
            execution.discarded = True
            self._executor.stop(execution.lease, "stopped")

    def replaced(self, error: CoordinationError) -> None:
        """Stop everything: this session is over, or nobody can be reached any more."""
        self._fail(error)

    def break_off(self, error: CoordinationError) -> None:
        """Stop everything, and wait for no answer: what is being published concerns nobody any more."""
        self._fail(error)
        for task in self._publishing:
            task.cancel()

    def _fail(self, error: CoordinationError) -> None:
        if self._fatal is None and self._closed is None:
            self._fatal = error
        for execution in list(self._running.values()):
            execution.discarded = True
            self._executor.stop(execution.lease, "stopped")
        self._draining.set()

    # ------------------------------------------------------------------ events

    async def _send_events(self) -> None:
        while True:
            await asyncio.sleep(EVENTS_INTERVAL_S)
            try:
                await self._session.send_events()
            except CoordinationError as error:
                self._fail(error)
                return

    async def _flush_events(self) -> None:
        if self._fatal is None:
            await self._session.send_events()
