"""Holding the garbage collector while much is made and nothing is dropped."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def collections_paused() -> Iterator[None]:
    """Hold collections while modules are loaded or a plan is built: each would walk all of it, and find nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
