"""A program that needs everything that nodes share: a cursor, steps, a large value, an artifact, an expansion."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from towline import Context, Cursor, Pipeline, SyncContext, module, result_of

MARKS = Path(os.environ.get("SPREAD_MARKS", "."))
TOTAL = 40
LARGE = 3_000_000


def mark(name: str) -> None:
    """Leave a line: this body has come so far here."""
    with (MARKS / "starts.txt").open("a", encoding="utf-8") as file:
        file.write(f"{name} {os.getpid()} 0\n")


@module(produces={"book": "book.txt"})
def write_book(ctx: SyncContext) -> str:
    mark("write_book")
    (ctx.workdir / "book.txt").write_text("a long story\n" * 1000)
    return "x" * LARGE


@module
async def move(ctx: Context) -> int:
    cursor: Cursor[int, int] = await ctx.cursor(key=lambda item: item, total=TOTAL)
    async for item in cursor.items(range(1, TOTAL + 1)):
        mark(f"item-{item}")
        await asyncio.sleep(float(os.environ.get("SPREAD_SLEEP", "0.05")))
        await cursor.commit(item)
    return TOTAL


@module(after=[move], consumes=[write_book.artifact("book", into="read")])
def read_book(ctx: SyncContext, text: str = result_of(write_book)) -> int:
    mark("read_book")
    assert len(text) == LARGE
    return len((ctx.workdir / "read" / "book.txt").read_text())


pipeline = Pipeline("keeping", [move, read_book])

if __name__ == "__main__":
    pipeline.main()
