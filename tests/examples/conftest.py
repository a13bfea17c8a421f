"""The real data that the examples move, built once per test session."""

from __future__ import annotations

from pathlib import Path

import pytest

import build_legacy


@pytest.fixture(scope="session")
def legacy_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source of the flight log move: a year of flights; some seconds to build."""
    file = tmp_path_factory.mktemp("legacy") / "legacy.sqlite"
    build_legacy.build(file, say=lambda line: None)
    return file
