"""The coordinator's logic as one pure state machine: operation and time in, reply and effects out."""

from towline.coordination.ledger.apply import apply
from towline.coordination.ledger.state import Effects, LedgerState

__all__ = ["Effects", "LedgerState", "apply"]
