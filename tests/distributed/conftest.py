"""What tests of real processes share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from distributed.fleet import Fleet
from distributed.machine import Machine
from towline.testing.redis_server import RedisTestServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def server() -> Iterator[RedisTestServer]:
    """One for all tests of a file: each run has an id of its own."""
    with RedisTestServer() as running:
        yield running


@pytest.fixture
def fleet(server: RedisTestServer, tmp_path: Path) -> Iterator[Fleet]:
    """A master and workers over that server; what still runs at the end is killed."""
    made = Fleet(tmp_path, server.url, f"run-{tmp_path.name}", sleep_s=0.3)
    yield made
    made.close()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A folder for runs with ``--workers``; what still runs at the end is killed."""
    made = Machine(tmp_path)
    yield made
    made.close()
