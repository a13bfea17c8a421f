"""Waiting for a run that the coordinator does not know: not opened yet, or lost and about to be opened anew."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from towline.errors.coordination import RunUnknownError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from towline.coordination.contract import WorkerCoordinator
    from towline.coordination.records import WorkerRegistration

T = TypeVar("T")

TRY_AGAIN_S = 1.0


async def ride_out(call: Callable[[], Awaitable[T]], *, limit_s: float, then: Callable[[], Awaitable[object]]) -> T:
    """Make a call that outlives the loss of the coordinator's data: the master opens the run anew (COORD-R19).

    ``then`` is done before each further try.

    Raises:
        RunUnknownError: The run has not come back for ``limit_s``.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + limit_s
    while True:
        try:
            return await call()
        except RunUnknownError:
            if loop.time() >= deadline:
                raise
        await asyncio.sleep(TRY_AGAIN_S)
        await then()


async def register_when_open(
    coordinator: WorkerCoordinator, registration: WorkerRegistration, *, limit_s: float
) -> None:
    """Register, waiting for the master to open the run (DIST-18).

    Raises:
        RunUnknownError: It did not within the limit.
        CoordinationError: The registration is refused.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + limit_s
    while True:
        try:
            await coordinator.register(registration)
            return
        except RunUnknownError:
            if loop.time() >= deadline:
                raise
        await asyncio.sleep(TRY_AGAIN_S)
