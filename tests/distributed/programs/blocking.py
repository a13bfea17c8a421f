"""A program whose body blocks the event loop of its worker, for longer than a lease of one second."""

from __future__ import annotations

import os
import time
from pathlib import Path

from towline import Context, Pipeline, module

MARKS = Path(os.environ.get("SPREAD_MARKS", "."))
BLOCKED_S = 3.5


@module
async def blocks(ctx: Context) -> int:
    with (MARKS / "starts.txt").open("a", encoding="utf-8") as file:
        file.write(f"blocks {os.getpid()} {time.time():.3f}\n")
    time.sleep(BLOCKED_S)  # noqa: ASYNC251 - that is what is tested
    return 1


pipeline = Pipeline("blocking", [blocks])
