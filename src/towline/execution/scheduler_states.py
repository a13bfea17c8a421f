"""The states of a task as the scheduler tells them apart: small ints in one array."""

from __future__ import annotations

from typing import Final

OUTSIDE: Final = 0
"""No part of this run (PLAN-48), or removed by a re-expansion."""
WAITING: Final = 1
READY: Final = 2
"""All dependencies are final; only rights are missing."""
DISPATCHED: Final = 3
RUNNING: Final = 4
UNEXPANDED: Final = 5
"""A join whose source is not known yet."""
EXPANDING: Final = 6
EXPANDED: Final = 7
"""A join that waits for its children."""
BLOCKED: Final = 8
"""A gate that found a reason to stop; nothing more happens to it in this run."""
FINAL: Final = 9
