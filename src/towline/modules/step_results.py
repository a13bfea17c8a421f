"""What the function of a step is declared to return."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

UNDECLARED: Final = object()
"""The function says nothing of its result; then only plain JSON values can be remembered."""


def declared_result(fn: Callable[..., Any]) -> Any:
    """Return the declared result type of a step's function, or ``UNDECLARED``."""
    from typing import get_type_hints

    try:
        return get_type_hints(fn).get("return", UNDECLARED)
    except (NameError, TypeError):
        return UNDECLARED
