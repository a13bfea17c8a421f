"""What every test of the suite may use."""

from __future__ import annotations

import os

import pytest

# Who runs the tests must not change what they look at: the width of a terminal wraps lines, a CI system folds them.
for name in ("COLUMNS", "CI", "GITHUB_ACTIONS", "GITLAB_CI", "TF_BUILD", "TEAMCITY_VERSION", "BUILDKITE", "TRAVIS"):
    os.environ.pop(name, None)

pytest_plugins = ["towline.testing.pytest_plugin"]


@pytest.fixture
def anyio_backend() -> str:
    """Async tests marked ``anyio`` run on asyncio, the only back end that Towline supports."""
    return "asyncio"
