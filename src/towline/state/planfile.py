"""The durable plan: snapshot and journal, written by its owner alone (PLAN-17..27)."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from towline.errors.state import StateLostError, StateTooLargeError
from towline.state.journal import JournalHeader, header_line, journal_line
from towline.state.keys import JOURNAL_KEY
from towline.state.plan_guard import PlanGuard
from towline.state.results import ResultFile
from towline.state.shielding import finish
from towline.state.snapshot import join
from towline.state.store import DOCUMENT_LIMIT_BYTES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Sequence

    from towline.state.plan_medium import PlanDraft
    from towline.state.snapshot import Loaded
    from towline.state.store import Ownership, StateStore

GROUP_LIMIT: Final = 256
"""Most records of one line where a line costs an fsync or a round trip (PLAN-25)."""

_INLINE_SYNC_BYTES: Final = 1 << 20


class PlanFile:
    """Plan and journal of one state root. ``results`` lie beside them, under the same guard.

    An owner calls ``load``, then ``write_snapshot`` (a take-over is one), then ``append`` for each loop turn.
    A failed write raises ``StateLostError``, and so does each later call: nothing more is written (PLAN-18).
    Without an ownership it only loads.
    """

    def __init__(self, store: StateStore, ownership: Ownership | None = None) -> None:
        self._medium = store.plan_medium(ownership)
        self._append_line = self._medium.append_journal
        self._guard = PlanGuard(self._medium.name, ownership)
        self.results = ResultFile(self._medium, self._guard)
        self.records_since_snapshot = 0
        self._at_once = self._medium.durable_at_once
        self._held = True
        """Appends wait while a snapshot is written: they belong to the journal that follows it."""
        self._queue: deque[Any] = deque()
        self._promises: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._queued, self._durable = 0, 0
        self._committer: asyncio.Task[None] | None = None

    async def load(self) -> Loaded:
        """Read snapshot and journal; changes nothing.

        Raises:
            PlanCorruptError, SchemaTooNewError: See ``snapshot.join``.
            StateLostError: They cannot be read.
        """
        try:
            # The journal first: a reader beside a living owner then sees an older journal than snapshot at
            # worst, as after a kill between the two, and never a journal ahead of its snapshot.
            journal = await self._medium.read_journal()
            snapshot = await self._medium.read_plan()
        except OSError as error:
            self._guard.lose("reading the plan", error)
        return join(snapshot, journal, self._medium.name)

    def append(self, records: Sequence[Any]) -> Awaitable[None] | None:
        """Add records to the journal: what one loop turn made is one line.

        Returns:
            ``None`` when they are durable already, which costs a few microseconds; otherwise what to await.

        Raises:
            StateLostError, OwnershipLostError: They are not durable and will not be; also by the awaitable.
            StateTooLargeError: The line would be above the limit.
        """
        self._guard.check()
        if not self._at_once or self._held:
            return self._promise(records)
        self._write_line(records)
        return None

    async def write_snapshot(self, chunks: Iterable[bytes], *, generation: int, plan_id: str, owner_epoch: int) -> None:
        """Replace ``plan.json``, then start an empty journal of that generation (PLAN-23).

        A kill at any moment leaves the old or the new plan readable (PLAN-24). Records that are appended
        meanwhile go into the new journal. Between two chunks other code runs: what they describe must
        not change until the call returns.

        Raises:
            StateLostError, OwnershipLostError: The old plan stays.
        """
        self._guard.check()
        await self.flush()
        held_before, self._held = self._held, True
        header = JournalHeader(plan_id=plan_id, generation=generation, owner_epoch=owner_epoch)
        try:
            await finish(self._replace_plan(chunks, header))
            self.records_since_snapshot = 0
            held_before = False
        finally:
            # Trouble in the chunks themselves leaves the old plan and its journal in use.
            self._held = held_before
            if self._queue and not self._held:
                self._start_committer()

    async def flush(self) -> None:
        """Wait until everything appended so far is durable."""
        while self._committer is not None:
            await finish(_joined(self._committer))

    async def close(self) -> None:
        """Flush and close the files; a second call does nothing (STATE-11)."""
        await self.flush()
        self._medium.close()

    # ------------------------------------------------------------------ inside

    def _write_line(self, records: Sequence[Any]) -> None:
        line = journal_line(records)
        if len(line) > DOCUMENT_LIMIT_BYTES:
            raise StateTooLargeError(JOURNAL_KEY, len(line), DOCUMENT_LIMIT_BYTES)
        try:
            self._append_line(line)
        except OSError as error:
            self._guard.lose("appending to the journal", error)
        self.records_since_snapshot += len(records)
        self._guard.last_record = records[-1]

    def _promise(self, records: Sequence[Any]) -> Awaitable[None]:
        promise = asyncio.get_running_loop().create_future()
        self._queue.extend(records)
        self._queued += len(records)
        self._promises.append((self._queued, promise))
        if not self._held:
            self._start_committer()
        return promise

    def _start_committer(self) -> None:
        if self._committer is None:
            self._committer = asyncio.get_running_loop().create_task(self._commit_all())

    async def _commit_all(self) -> None:
        """Write line after line until nothing waits; the next line holds what came during the last sync."""
        try:
            while self._queue and not self._held:
                group = [self._queue.popleft() for _ in range(min(GROUP_LIMIT, len(self._queue)))]
                self._guard.check()
                self._write_line(group)
                try:
                    await self._medium.sync()
                except OSError as error:
                    self._guard.lose("syncing the journal", error)
                self._durable += len(group)
                self._keep_promises()
        except asyncio.CancelledError:
            self._break_promises(StateLostError(self._medium.name, "appending to the journal", "the loop is closing"))
            raise
        except BaseException as error:  # noqa: BLE001 - whoever appended hears of it; nobody awaits this task's result
            self._break_promises(error)
        finally:
            self._committer = None

    def _keep_promises(self) -> None:
        while self._promises and self._promises[0][0] <= self._durable:
            _, promise = self._promises.popleft()
            if not promise.done():
                promise.set_result(None)

    def _break_promises(self, error: BaseException) -> None:
        self._queue.clear()
        while self._promises:
            _, promise = self._promises.popleft()
            if not promise.done():
                promise.set_exception(error)

    async def _replace_plan(self, chunks: Iterable[bytes], header: JournalHeader) -> None:
        draft: PlanDraft | None = None
        try:
            draft = self._medium.draft_plan()
            size = 0
            for chunk in chunks:
                if size:
                    await asyncio.sleep(0)
                draft.write(chunk)
                size += len(chunk)
            if size < _INLINE_SYNC_BYTES:
                draft.sync()
            else:
                await asyncio.to_thread(draft.sync)
            self._guard.check()
            await draft.publish()
            await self._medium.start_journal(header_line(header))
        except OSError as error:
            self._guard.lose("writing the plan", error)
        finally:
            if draft is not None:
                draft.discard()
            if self._guard.failure is not None:
                self._break_promises(self._guard.failure)


async def _joined(task: asyncio.Task[None]) -> None:
    await asyncio.wait({task})
