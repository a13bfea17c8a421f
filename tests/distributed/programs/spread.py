"""A program whose tasks say where they ran, for runs over several processes."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from towline import Context, Pipeline, SyncContext, module, result_of

MARKS = Path(os.environ.get("SPREAD_MARKS", "."))


def mark(name: str) -> None:
    """Leave a line: this body has started here."""
    with (MARKS / "starts.txt").open("a", encoding="utf-8") as file:
        file.write(f"{name} {os.getpid()} {time.time():.3f}\n")


@module
async def seeds(ctx: Context) -> list[int]:
    mark("seeds")
    return list(range(6))


@module(each=result_of(seeds))
async def grow(ctx: Context, item: int) -> int:
    mark(f"grow-{item}")
    ctx.log.info("growing %d", item)
    await asyncio.sleep(float(os.environ.get("SPREAD_SLEEP", "0.05")))
    return item * item


@module
def harvest(ctx: SyncContext, grown: list[int] = result_of(grow)) -> int:
    mark("harvest")
    return sum(grown)


pipeline = Pipeline("spread", [harvest])

if __name__ == "__main__":
    pipeline.main()
