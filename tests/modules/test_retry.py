"""When and how fast a body is tried again."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline import Retry, Skip
from towline.testing import clause


@clause("RUN-17")
@given(st.integers(1, 5_000), st.floats(0, 10), st.floats(1, 10), st.floats(0, 100), st.integers())
def test_back_off_lies_between_half_and_all_of_the_bounded_delay(
    failed: int, base_s: float, factor: float, max_s: float, seed: int
) -> None:
    """Jitter spreads the tries of many tasks; the bound keeps the last one from waiting for hours."""
    retry = Retry(3, base_s=base_s, factor=factor, max_s=max_s)
    try:
        full = min(max_s, base_s * factor ** (failed - 1))
    except OverflowError:
        full = max_s

    assert full / 2 <= retry.delay_s(failed, Random(seed)) <= full


@clause("RUN-17")
def test_default_back_off_is_the_rule_of_the_spec() -> None:
    """0.1 s, doubled with each failure, at most a minute."""

    class Latest(Random):
        def random(self) -> float:
            return 1.0

    assert [round(Retry(20).delay_s(n, Latest()), 3) for n in (1, 2, 3, 11)] == [0.1, 0.2, 0.4, 60.0]


@clause("RUN-18")
def test_only_errors_worth_it_are_tried_again() -> None:
    """Trying a typing error again costs a minute and gives the same error."""
    assert Retry(1).wants(ValueError())
    assert Retry(1, on=OSError).wants(ConnectionError())
    assert not Retry(1, on=(OSError, KeyError)).wants(ValueError())
    assert Retry(1, on=lambda error: "busy" in str(error)).wants(ValueError("busy"))
    assert not Retry(1, on=lambda error: error.missing).wants(ValueError())  # type: ignore[attr-defined]
    assert not Retry(1, on=lambda error: "yes").wants(ValueError())  # type: ignore[arg-type, return-value]


@clause("RUN-62")
def test_skip_carries_its_reason() -> None:
    """The text is what people see of the task."""
    with pytest.raises(Skip, match="nothing to deploy") as raised:
        raise Skip("nothing to deploy")
    assert raised.value.text == "nothing to deploy"
