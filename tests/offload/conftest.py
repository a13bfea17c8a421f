"""What the tests of offload share. Without the extra they stay out, and say so."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

HAS_NUMPY = importlib.util.find_spec("numpy") is not None

if not HAS_NUMPY:
    collect_ignore_glob = ["test_*.py"]


def pytest_report_header() -> str | None:
    """Say that these tests stay out, where the extra is not installed."""
    return None if HAS_NUMPY else "offload: numpy is not installed, its tests stay out (towline[offload])"


@pytest.fixture(autouse=True)
def _no_overflow_noise() -> Iterator[None]:
    """Kernels of the tests calculate with wrapping integers on purpose."""
    import numpy as np

    with np.errstate(all="ignore"):
        yield
