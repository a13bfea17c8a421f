"""The oracle of a simulated run: what has really happened, and whether it may."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from towline.coordination.ledger.state import LedgerState
    from towline.coordination.records import Lease


class SimulationError(AssertionError):
    """The oracle found a fault; its text has the plan that shows it."""


class Ledgerbook:
    """What has really happened, seen from above; the oracle judges by it."""

    def __init__(self) -> None:
        self.executions: dict[tuple[str, int], str] = {}
        self.side_writes: dict[str, int] = {}
        self.starts: dict[str, int] = {}
        self.finals: dict[str, int] = {}
        self.faults: list[str] = []

    def started(self, lease: Lease, who: str) -> None:
        """A body has started under a lease; an epoch belongs to one execution alone (COORD-C48)."""
        key = (lease.task_id, lease.epoch)
        other = self.executions.setdefault(key, who)
        if other != who:
            self.faults.append(f"{lease.task_id} epoch {lease.epoch} was given to {other} and to {who}")
        self.starts[lease.task_id] = self.starts.get(lease.task_id, 0) + 1

    def wrote(self, lease: Lease) -> bool:
        """A body writes beside its outcome; the store refuses an older epoch (DIST-35). Says whether it was taken."""
        if lease.epoch < self.side_writes.get(lease.task_id, 0):
            return False
        self.side_writes[lease.task_id] = lease.epoch
        return True

    def ended(self, task_id: str, value: int, expected: int) -> None:
        """The engine was told an outcome: once per task, and the right one."""
        if task_id in self.finals:
            self.faults.append(f"{task_id} ended twice")
        if value != expected:
            self.faults.append(f"{task_id} gave {value}, not {expected}")
        self.finals[task_id] = value

    def judged(self, tasks: Iterable[str], state: LedgerState, error: Exception | None) -> list[str]:
        """Return all that is not as in a run without faults: every task final, none left over, the master content."""
        found = list(self.faults)
        if error is not None:
            found.append(f"the master gave up: {error!r}")
        missing = [name for name in tasks if name not in self.finals]
        if missing and not found:
            found.append(f"not final: {', '.join(missing)}")
        if any(bucket.queue for bucket in state.buckets):
            found.append("tasks are left in the queue")
        return found
