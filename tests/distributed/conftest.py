"""What tests of real processes share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from distributed.machine import Machine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A folder for runs with ``--workers``; what still runs at the end is killed."""
    made = Machine(tmp_path)
    yield made
    made.close()
