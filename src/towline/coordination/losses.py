"""The outcome of a task whose lease was lost once too often; every back end makes the same one (COORD-C44, C45, R07)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from towline.clock.clock import moment
from towline.coordination.records import OutcomeRecord
from towline.serialization.errors_record import ErrorRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

LossCode: TypeAlias = Literal["lease_lost", "requeue_limit"]
LOSS_CODES: Final = frozenset(get_args(LossCode))

_TEXTS: dict[LossCode, str] = {
    "lease_lost": "may have run at most once and its lease was lost",
    "requeue_limit": "was lost more often than the requeue limit allows",
}


def lost_outcome(task_id: str, epoch: int, code: LossCode, workers: Sequence[str], at_ms: int) -> OutcomeRecord:
    """Make the failure of a task that workers lost; ``workers`` in the order of the losses."""
    names = ", ".join(workers)
    text = f"{task_id} {_TEXTS[code]}: {names}. Look at what ended these workers, then resume the run."
    return OutcomeRecord(
        task_id=task_id,
        epoch=epoch,
        worker_id=workers[-1],
        state="failed",
        reason=code,
        reason_text=text,
        error=ErrorRecord(type_name="towline.errors.coordination.LeaseLostError", text=text),
        published_at=moment(at_ms / 1000),
    )
