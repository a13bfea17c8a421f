"""What the operator is told of workers: who is not heard of, what that does to their tasks, whom tasks wait for (DIST-28, DIST-33)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from towline.coordination.records import FeedEntry, WorkerRegistration, WorkerStatus

KNOWN_LIMIT = 1_000
"""Workers that are kept by name, the latest; an older one is called by its id alone."""

NAMED_TASKS = 5
"""Tasks that a line names; of more it says how many."""

QUIET_HEARTBEATS = 2
"""Heartbeats that a living worker does not miss: whoever misses them while tasks wait for it is spoken of."""


class WorkerWatch:
    """Knows who has taken part. Nothing here waits or asks: it is given what was heard, and returns what to say.

    ``timeout_s``: after which silence a lease runs out; ``heartbeat_s``: between two signs of life.
    """

    def __init__(self, *, timeout_s: float, heartbeat_s: float) -> None:
        self.quiet_s = QUIET_HEARTBEATS * heartbeat_s
        self._timeout_s = timeout_s
        self._known: dict[str, WorkerRegistration] = {}
        self._here: set[str] = set()
        self._told: set[str] = set()

    def see(self, workers: Iterable[WorkerRegistration]) -> None:
        """Note who is here now."""
        self._here.clear()
        for worker in workers:
            self._here.add(worker.worker_id)
            self._known.pop(worker.worker_id, None)
            self._known[worker.worker_id] = worker
        while len(self._known) > max(KNOWN_LIMIT, len(self._here)):
            del self._known[next(iter(self._known))]

    def gone(self) -> list[WorkerRegistration]:
        """Return those who were here and are not any more."""
        return [worker for worker_id, worker in self._known.items() if worker_id not in self._here]

    def called(self, worker_id: str) -> str:
        """Return how to speak of a worker, so that its process can be found."""
        known = self._known.get(worker_id)
        if known is None or not known.host:
            return worker_id
        return f"{worker_id} ({known.host}, process {known.pid})"

    def losses(self, entries: Sequence[FeedEntry], holders: Mapping[str, Sequence[str]]) -> list[str]:
        """Say who fell silent, was replaced or lost a lease, with the tasks that go back to the queue.

        An expelled worker is told of by whoever expelled it: only that one knows why. One that is gone while it still
        holds tasks is told of when they come back. ``holders``: worker to its tasks, before these entries.
        """
        lost: dict[str, list[str]] = {}
        why: dict[str, str] = {}
        for entry in entries:
            worker_id = entry.worker_id or ""
            if entry.kind == "requeued":
                lost.setdefault(worker_id, []).append(entry.task_id or "")
            elif entry.kind == "worker_gone" and entry.why != "final":
                why[worker_id] = entry.why or ""
        lines = []
        for worker_id in sorted(lost.keys() | why.keys()):
            tasks = lost.get(worker_id, [])
            was_told = worker_id in self._told
            self._told.add(worker_id)
            if why.get(worker_id) == "expelled" or (not tasks and holders.get(worker_id)):
                continue
            if tasks and was_told:
                why.setdefault(worker_id, "silent")
            lines.append(f"worker {self.called(worker_id)} {self._how_lost(why.get(worker_id))}{_back(tasks)}")
        return lines

    def _how_lost(self, why: str | None) -> str:
        if why == "silent":
            return f"has not been heard of for {self._timeout_s:g} s"
        if why == "replaced":
            return "was silent, and another process has its name now"
        return "has not renewed a lease in time"

    def lost_line(self, entry: FeedEntry) -> str:
        """Say in the log of a task what became of a claim of it."""
        return f"worker {self.called(entry.worker_id or '')} was lost with it (epoch {entry.epoch}): it is queued again"

    def silences(self, statuses: Iterable[WorkerStatus], holders: Mapping[str, Sequence[str]]) -> list[str]:
        """Say, once per silence, which workers that hold tasks are not heard of, and until when that is waited for.

        ``holders``: worker to its tasks.
        """
        silent = {status.worker_id: status.silent_ms / 1000 for status in statuses}
        self._told.intersection_update(holders)
        lines = []
        for worker_id in sorted(holders):
            silent_s = silent.get(worker_id, 0.0 if worker_id in self._here else self._timeout_s)
            if silent_s < self.quiet_s:
                if worker_id in self._told:
                    self._told.discard(worker_id)
                    lines.append(f"worker {self.called(worker_id)} is heard of again")
            elif worker_id not in self._told:
                self._told.add(worker_id)
                left_s = self._timeout_s - silent_s
                until = f"in about {left_s:.0f} s" if left_s > 0 else f"within {self._timeout_s:g} s"
                heard = f"was last heard of {silent_s:.0f} s ago" if left_s > 0 else "is not there"
                lines.append(
                    f"worker {self.called(worker_id)} {heard}; {names(holders[worker_id])} "
                    f"waits until its lease has run out, {until}"
                )
        return lines


def names(tasks: Sequence[str]) -> str:
    """Name a few tasks, and count the rest."""
    more = f" and {len(tasks) - NAMED_TASKS:,} more" if len(tasks) > NAMED_TASKS else ""
    return ", ".join(tasks[:NAMED_TASKS]) + more


def _back(tasks: Sequence[str]) -> str:
    if not tasks:
        return ""
    return f": {names(tasks)} {'goes' if len(tasks) == 1 else 'go'} back to the queue"
