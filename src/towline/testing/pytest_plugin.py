"""Fixtures and a marker for pytest; loaded by itself where Towline is installed (TEST-01).

``@pytest.mark.virtual_time`` runs an async test on a :class:`VirtualLoop`; ``virtual_time(seed=7)`` shuffles the
ready callbacks, ``virtual_time(seeds=20)`` repeats the test with seeds 0 to 19.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from random import Random

    from towline.testing.clocks import FakeExit, TestClock
    from towline.testing.virtual_loop import Seed


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers", "virtual_time(seed=None, seeds=None): run an async test on a virtual-time loop, once or per seed"
    )


def _seeds(seed: Seed = None, seeds: int | None = None) -> list[Seed]:
    return [seed] if seeds is None else list(range(seeds))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> object | None:
    """Run marked async tests; anything else is left to others."""
    marker = pyfuncitem.get_closest_marker("virtual_time")
    if marker is None or not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    from towline.testing.virtual_loop import run_virtual

    names = pyfuncitem._fixtureinfo.argnames
    arguments: dict[str, Any] = {name: pyfuncitem.funcargs[name] for name in names}
    for seed in _seeds(*marker.args, **marker.kwargs):
        run_virtual(pyfuncitem.obj(**arguments), seed=seed)
    return True


@pytest.fixture
def fake_exit() -> FakeExit:
    """An exit door that remembers codes and leaves nothing."""
    from towline.testing.clocks import FakeExit

    return FakeExit()


@pytest.fixture
def hand_clock() -> TestClock:
    """A clock that stands still until the test advances it."""
    from towline.testing.clocks import TestClock

    return TestClock()


@pytest.fixture
def seeded_random(request: pytest.FixtureRequest) -> Random:
    """A random source whose seed is fixed, or ``TOWLINE_TEST_SEED``; the seed is shown when the test fails."""
    from random import Random

    from towline.testing.virtual_loop import SEED_VARIABLE, chosen_seed

    seed = chosen_seed(0)
    request.node.add_report_section("setup", "seed", f"{SEED_VARIABLE}={seed}")
    return Random(seed)
