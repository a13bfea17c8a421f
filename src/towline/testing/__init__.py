"""What tests of modules, stores and coordinators need; no test framework required."""

from towline.testing.clauses import clause

__all__ = ["clause"]
