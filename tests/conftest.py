"""What every test of the suite may use."""

from __future__ import annotations

import os

import pytest

os.environ.pop("COLUMNS", None)  # else the width of whoever runs the tests wraps what they look at

pytest_plugins = ["towline.testing.pytest_plugin"]


@pytest.fixture
def anyio_backend() -> str:
    """Async tests marked ``anyio`` run on asyncio, the only back end that Towline supports."""
    return "asyncio"
