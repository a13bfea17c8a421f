"""Tie a test to the clause that it proves (TEST-12)."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., object]")


def clause(*ids: str) -> Callable[[F], F]:
    """Mark a test as the proof of these clauses, for example ``@clause("RUN-22")``."""

    def mark(test: F) -> F:
        test.__dict__["clauses"] = (*test.__dict__.get("clauses", ()), *ids)
        return test

    return mark
