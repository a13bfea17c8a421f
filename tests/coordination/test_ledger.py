"""The pure ledger under random operations."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from towline.coordination.ledger import LedgerState
from towline.testing import clause
from towline.testing.ledger_model import CHOICE_LIMIT, LedgerDriver

numbers = st.integers(0, CHOICE_LIMIT)
choices = st.lists(st.tuples(numbers, numbers, numbers), min_size=20, max_size=60)


@clause("COORD-C34", "COORD-C48", "COORD-C51", "COORD-C70")
@settings(max_examples=150, deadline=None)
@given(choices)
def test_no_sequence_of_operations_breaks_the_ledger(steps: list[tuple[int, int, int]]) -> None:
    """One place per task, growing epochs, ordered queues, a feed without gaps: whatever is asked."""
    driver = LedgerDriver("r")
    finals: dict[str, object] = {}
    for choice in steps:
        driver.apply(driver.next_operation(choice))
        driver.check()
        for task_id, outcome in finals.items():
            assert driver.state.outcomes[task_id] == outcome
        finals = dict(driver.state.outcomes)


@clause("COORD-C86")
@settings(max_examples=40, deadline=None)
@given(choices)
def test_the_ledger_survives_being_written_and_read(steps: list[tuple[int, int, int]]) -> None:
    """A document store holds the whole ledger as JSON between two operations."""
    kept, stored = LedgerDriver("r"), LedgerDriver("r")
    for choice in steps:
        operation = kept.next_operation(choice)
        assert stored.next_operation(choice) == operation
        assert kept.apply(operation) == stored.apply(operation)
        stored.state = msgspec.json.decode(msgspec.json.encode(stored.state), type=LedgerState)
