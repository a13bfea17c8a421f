"""Real servers for the whole room."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from towline.testing.redis_server import RedisTestServer

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """A server of the session's own; tests use run ids of their own."""
    with RedisTestServer() as server:
        yield server.url


@pytest.fixture(scope="session")
def cluster_url() -> Iterator[str]:
    """A cluster of one node."""
    with RedisTestServer(cluster=True) as server:
        yield server.url
