"""Named points: what a test may stop, and how it learns of its own mistakes."""

from __future__ import annotations

import asyncio

import pytest

from towline.errors.virtual_time import SignalPointError
from towline.testing import clause
from towline.testing.clocks import WALL_START, FakeExit, ProcessExited, TestClock
from towline.testing.signals import TestSignal


@clause("TEST-07")
@pytest.mark.virtual_time
async def test_code_stops_at_a_held_point_until_released() -> None:
    """The test, not chance, decides what happens between claim and publish."""
    story: list[str] = []

    async def claim() -> str:
        story.append("claim")
        return "lease"

    with TestSignal("claimed") as signal:
        signal.hold("claimed")
        worker = asyncio.ensure_future(signal.around(claim, after="claimed")())
        await signal.reached("claimed")
        await asyncio.sleep(60)
        story.append("lease expires")
        assert not worker.done()
        signal.release("claimed")
        assert await worker == "lease"
    assert story == ["claim", "lease expires"]


@clause("TEST-07")
@pytest.mark.virtual_time
async def test_unused_and_misspelt_points_fail() -> None:
    """A point that nothing passes would make the test green for want of a race."""
    with pytest.raises(SignalPointError, match="never reached"), TestSignal("claimed"):
        pass
    with pytest.raises(SignalPointError, match="Did you mean 'claimed'"):
        TestSignal("claimed").hold("claimd")


@clause("TEST-06")
@pytest.mark.virtual_time
async def test_nodes_disagree_on_wall_time_alone() -> None:
    """A node whose wall clock is an hour off must still measure durations right."""
    clock = TestClock.of_running_loop()
    late = clock.skewed(-3_600)
    await asyncio.sleep(90)
    assert (clock.now(), late.now()) == (WALL_START + 90, WALL_START + 90 - 3_600)
    assert clock.monotonic() == late.monotonic() == 90


@clause("TEST-06")
def test_exit_and_hand_clock_are_doors() -> None:
    """A test must survive the exit it provokes, and move time without a loop."""
    leave, clock = FakeExit(), TestClock()
    with pytest.raises(ProcessExited) as caught:
        leave(4)
    assert (caught.value.code, leave.codes) == (4, [4])
    clock.advance(5)
    assert clock.monotonic() == 5
    with pytest.raises(ValueError, match="backwards"):
        clock.advance(-1)
