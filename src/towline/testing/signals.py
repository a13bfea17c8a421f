"""Stop code at named points, so that a test decides which interleaving happens (TEST-07)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from towline.errors.virtual_time import SignalPointError
from towline.identity.names import suggestion

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

P = ParamSpec("P")
T = TypeVar("T")


class _Point:
    def __init__(self) -> None:
        self.visits = 0
        self.open = asyncio.Event()
        self.open.set()
        self.visited = asyncio.Condition()


class TestSignal:
    """Named points that code under test passes and a test waits for, holds and releases.

    The code calls ``await signal.at("claimed")``, or a call into it is wrapped with :meth:`around`. The test
    does ``signal.hold("claimed")`` beforehand, ``await signal.reached("claimed")``, and ``signal.release(...)``.
    Used as a context manager it fails at the end for every point that was never reached; a point that was
    not declared fails at once. All on one event loop.
    """

    __test__ = False

    def __init__(self, *points: str) -> None:
        self._points = {name: _Point() for name in points}

    def _point(self, name: str) -> _Point:
        try:
            return self._points[name]
        except KeyError:
            known = ", ".join(self._points) or "none"
            raise SignalPointError(
                name, f"is not declared; declared: {known}.{suggestion(name, self._points)}"
            ) from None

    async def at(self, name: str) -> None:
        """Say that the code is here, and wait while the point is held."""
        point = self._point(name)
        point.visits += 1
        async with point.visited:
            point.visited.notify_all()
        await point.open.wait()

    async def reached(self, name: str, times: int = 1) -> None:
        """Wait until the code has been here this often since the start; on a virtual loop a never is a deadlock error."""
        point = self._point(name)
        async with point.visited:
            await point.visited.wait_for(lambda: point.visits >= times)

    def hold(self, name: str) -> None:
        """From now on stop everyone who comes here."""
        self._point(name).open.clear()

    def release(self, name: str) -> None:
        """Let everyone who waits here go on, and stop nobody any more."""
        self._point(name).open.set()

    def around(
        self, call: Callable[P, Awaitable[T]], *, before: str | None = None, after: str | None = None
    ) -> Callable[P, Awaitable[T]]:
        """Return the call with a point before it, after it, or both: for code that knows of no signal."""

        async def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
            if before is not None:
                await self.at(before)
            result = await call(*args, **kwargs)
            if after is not None:
                await self.at(after)
            return result

        return wrapped

    def __enter__(self) -> TestSignal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: Any, traceback: Any) -> None:
        """Fail for points that were never reached, unless the test has failed already."""
        if kind is not None:
            return
        for name, point in self._points.items():
            if not point.visits:
                raise SignalPointError(
                    name, "was never reached: the test proves less than it says. Drop it or correct its name."
                )
