"""A pipeline whose bodies run commands that do not want to end; started and ended by ``test_node_ends.py``."""

from __future__ import annotations

import os
from pathlib import Path

from towline import Context, Options, Pipeline, SyncContext, module

STUBBORN = """
trap '' TERM
sleep 300 &
child=$!
setsid sleep 300 &
echo $$ $child $! >> pids
while :; do sleep 0.05; done
"""
"""Ignores SIGTERM, as all that it starts does: one child in its session, one that left it."""

POLITE = """
trap 'sleep 1; echo bye > bye.txt; exit 0' TERM
echo $$ >> pids
while :; do sleep 0.05; done
"""


def shell(program: str) -> tuple[str, str, str]:
    """The command; once the operator has repaired things, one that ends at once."""
    return ("sh", "-c", "true" if os.environ.get("TOWLINE_TEST_REPAIRED") else program)


@module
def first(ctx: SyncContext) -> None:
    with Path("first.txt").open("a") as file:
        print("ran", file=file)


@module(after=[first])
async def on_loop(ctx: Context) -> None:
    await ctx.run(*shell(STUBBORN), grace=1)


@module(after=[first])
def in_thread(ctx: SyncContext) -> None:
    ctx.run(*shell(STUBBORN), grace=1)


@module(after=[first], isolation="process")
def isolated(ctx: SyncContext) -> None:
    ctx.run(*shell(STUBBORN), grace=1)


@module(after=[first])
async def polite(ctx: Context) -> None:
    await ctx.run(*shell(POLITE), grace=5)


@module(after=[first])
async def patient(ctx: Context) -> None:
    await ctx.run(*shell(STUBBORN), grace=600)


pipeline = Pipeline(
    "commanding",
    [first, on_loop, in_thread, isolated, polite, patient],
    options=Options(cancel_grace_s=0.5, terminate_grace_s=float(os.environ.get("TOWLINE_TEST_GRACE", "1.5"))),
)

if __name__ == "__main__":
    pipeline.main()
