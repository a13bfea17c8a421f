"""What tests of modules, stores and coordinators need; no test framework required."""

from towline.testing.clauses import clause
from towline.testing.clocks import FakeExit, ProcessExited, TestClock
from towline.testing.fakes import FakeContext, FakeSyncContext
from towline.testing.made_outcomes import cancelled, failed, skipped, succeeded, timed_out
from towline.testing.modes import SeenRun, in_modes, run_in_mode
from towline.testing.module_tester import ModuleTester
from towline.testing.signals import TestSignal
from towline.testing.virtual_loop import ClockHold, VirtualLoop, run_virtual

__all__ = [
    "ClockHold",
    "FakeContext",
    "FakeExit",
    "FakeSyncContext",
    "ModuleTester",
    "ProcessExited",
    "SeenRun",
    "TestClock",
    "TestSignal",
    "VirtualLoop",
    "cancelled",
    "clause",
    "failed",
    "in_modes",
    "run_in_mode",
    "run_virtual",
    "skipped",
    "succeeded",
    "timed_out",
]
