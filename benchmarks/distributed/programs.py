"""The pipeline that a measurement runs, its workers warmed up as the floor's are; ``TOWLINE_TEST_SHAPE`` says which, ``TOWLINE_TEST_MARKS`` where bodies leave lines."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from floor import payload

from towline import Context, Pipeline, SyncContext, module, result_of

CHAIN = 200


@module(matrix={"number": list(range(50))})
async def warm(ctx: Context, number: int) -> None: ...


@module(matrix={"number": list(range(1000))}, after=[warm])
async def nop(ctx: Context, number: int) -> None: ...


@module(matrix={"number": list(range(50))}, after=[warm])
async def nap(ctx: Context, number: int) -> None:
    await asyncio.sleep(0.05)


@module(matrix={"number": list(range(200))}, after=[warm])
async def big(ctx: Context, number: int) -> list[str]:
    return payload(number)


@module
def hang(ctx: SyncContext) -> None:
    marks = Path(os.environ["TOWLINE_TEST_MARKS"])
    is_first = not marks.exists()
    with marks.open("a", encoding="utf-8") as file:
        file.write(f"{time.monotonic()} {os.getpid()}\n")
    if is_first:
        time.sleep(600)


def _link(number: int, before: Any) -> Any:
    if before is None:

        async def first(ctx: Context) -> tuple[float, float]:
            return time.monotonic(), time.monotonic()

        return module(name=f"link{number}", after=[warm])(first)

    async def later(ctx: Context, mark: tuple[float, float] = result_of(before)) -> tuple[float, float]:
        return time.monotonic(), time.monotonic()

    return module(name=f"link{number}")(later)


def chain() -> list[Any]:
    """Return modules of which each takes the value of the one before."""
    links: list[Any] = []
    for number in range(CHAIN):
        links.append(_link(number, links[-1] if links else None))
    return links


SHAPES: dict[str, list[Any]] = {"nop": [nop], "nap": [nap], "big": [big], "hang": [hang], "chain": chain()}
pipeline = Pipeline("measured", SHAPES[os.environ.get("TOWLINE_TEST_SHAPE", "nop")])
