"""Every error that Towline raises, by what it concerns."""

from towline.errors.root import TowlineError

__all__ = ["TowlineError"]
