"""What tests of modules, stores and coordinators need; no test framework required."""

from towline.testing.clauses import clause
from towline.testing.clocks import FakeExit, ProcessExited, TestClock
from towline.testing.signals import TestSignal
from towline.testing.virtual_loop import ClockHold, VirtualLoop, run_virtual

__all__ = [
    "ClockHold",
    "FakeExit",
    "ProcessExited",
    "TestClock",
    "TestSignal",
    "VirtualLoop",
    "clause",
    "run_virtual",
]
