"""How much of the year the flight log move moves in tests: January, or all of it with ``TOWLINE_TEST_MOVE=full``."""

from __future__ import annotations

import os

FULL = os.environ.get("TOWLINE_TEST_MOVE", "small") == "full"

PIPELINE = "pipeline" if FULL else "small"
"""The pipeline of ``flight_log_move.py`` that moves it."""
STATE = "flights" if FULL else "small"
"""The name of that pipeline, which its state folder has."""
FLIGHTS = 336_776 if FULL else 27_004
LIMIT_S = 900 if FULL else 100
"""The longest that one run may take."""
