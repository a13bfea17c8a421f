"""A pipeline that a child process can load: the same in every mode, bodies in processes included."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from towline import (
    Context,
    Module,
    Options,
    Outcome,
    Pipeline,
    Retry,
    Skip,
    SyncContext,
    maybe_result_of,
    module,
    outcome_of,
    result_of,
)


@module
async def look(ctx: Context) -> list[str]:
    ctx.log.info("looking")
    return ["a", "b"]


@module(each=result_of(look), retries=Retry(1, base_s=0.01))
def pack(ctx: SyncContext, item: str) -> str:
    if item == "b" and ctx.attempt == 1:
        raise ConnectionError("once")
    print(f"packing {item}")
    return item * 2


@module
async def skips(ctx: Context) -> int:
    raise Skip("nothing new")


@module(ignore_failure=True)
def fails(ctx: SyncContext) -> int:
    raise ValueError("fails")


class Merge(Module[dict[str, int]]):
    """Reads everything that came before."""

    packed: list[str] = result_of(pack)
    skipped: int | None = maybe_result_of(skips)
    failed: Outcome[int] = outcome_of(fails)

    async def before(self, ctx: Context) -> None:
        ctx.log.info("before")

    async def run(self, ctx: Context) -> dict[str, int]:
        assert self.skipped is None
        return {one: len(one) for one in self.packed} | {type(self.failed).__name__: 0}


pipeline = Pipeline("parity", [Merge], options=Options(parallelism=1))


@module(timeout=0.4)
def sleeper(ctx: SyncContext) -> None:
    time.sleep(1.5)
    Path("late.txt").write_text("late")


@module(timeout=0.4, isolation="process")
def killed(ctx: SyncContext) -> None:
    time.sleep(1.5)
    Path("late.txt").write_text("late")


@module(always_run=True, after=[sleeper])
def after_sleeper(ctx: SyncContext) -> int:
    return os.getpid()


@module(isolation="process")
async def isolated(ctx: Context) -> int:
    await asyncio.sleep(0)
    return os.getpid()


killing = Pipeline("killing", [killed])
isolating = Pipeline("isolating", [isolated])


@module
async def where(ctx: Context) -> int:
    return os.getpid()


whereabouts = Pipeline("whereabouts", [where])
