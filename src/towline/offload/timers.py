"""The part of an event loop that the shells of the cores need; a simulation gives its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class TimerHandle(Protocol):
    """A callback that will be called."""

    def cancel(self) -> None:
        """Do not call it."""
        ...


class Timers(Protocol):
    """Time, and callbacks at moments of it. Every asyncio loop is one."""

    def time(self) -> float:
        """Return seconds on a clock that never steps back."""
        ...

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any) -> TimerHandle:
        """Call back at a moment."""
        ...

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> TimerHandle:
        """Call back after what is ready now."""
        ...
