"""Time, chance and process exit as objects that a test can replace."""

from towline.clock.clock import Clock, SystemClock, moment
from towline.clock.exits import Exit, SystemExitDoor

__all__ = ["Clock", "Exit", "SystemClock", "SystemExitDoor", "moment"]
