"""What every test of the suite may use."""

from __future__ import annotations

import pytest

pytest_plugins = ["towline.testing.pytest_plugin"]


@pytest.fixture
def anyio_backend() -> str:
    """Async tests marked ``anyio`` run on asyncio, the only back end that Towline supports."""
    return "asyncio"
