"""A program with one long task that keeps its place, for workers that die in the middle of it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from towline import Context, Cursor, Pipeline, module

TOTAL = 60


@module
async def move(ctx: Context) -> int:
    cursor: Cursor[int, int] = await ctx.cursor(key=lambda item: item, total=TOTAL)
    async for item in cursor.items(range(1, TOTAL + 1)):
        with (Path(os.environ["SPREAD_MARKS"]) / "starts.txt").open("a", encoding="utf-8") as file:
            file.write(f"item-{item} {os.getpid()} 0\n")
        await asyncio.sleep(float(os.environ.get("SPREAD_SLEEP", "0.01")))
        await cursor.commit(item)
    assert cursor.position == TOTAL
    return TOTAL


pipeline = Pipeline("moving", [move])
