"""A program for worker processes of one machine: it says where bodies ran, and may kill whoever loads it."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import msgspec

from towline import Pipeline, Secret, SyncContext, module, result_of

MARKS = Path(os.environ.get("SPREAD_MARKS", "."))
IS_WORKER = "towline.pipeline.embedded_child" in sys.modules

if IS_WORKER and os.environ.get("EMBEDDED_DIES") == "at_start":
    os.kill(os.getpid(), signal.SIGKILL)


class Params(msgspec.Struct):
    region: str = "eu"
    key: Secret = Secret("unset")


def mark(name: str, *more: object) -> None:
    """Leave a line: this body has started here."""
    with (MARKS / "starts.txt").open("a", encoding="utf-8") as file:
        file.write(" ".join(map(str, (name, os.getpid(), *more))) + "\n")


@module
def here(ctx: SyncContext) -> str:
    params = ctx.params(Params)
    mark(
        "here",
        params.region,
        params.key.reveal(),
        any(name.startswith("TOWLINE_WORKER_") for name in os.environ),
        sys.stdin.read() == "",
    )
    return params.region


@module(requires="master")
def at_home(ctx: SyncContext, region: str = result_of(here)) -> str:
    mark("at_home")
    return region


@module(isolation="process", produces={"note": "note.txt"})
def apart(ctx: SyncContext, region: str = result_of(at_home)) -> str:
    mark("apart")
    Path("note.txt").write_text(f"from {region}", encoding="utf-8")
    return region


@module(consumes=[apart.artifact("note", into="got")])
def reads(ctx: SyncContext, region: str = result_of(apart)) -> str:
    mark("reads")
    return Path("got/note.txt").read_text(encoding="utf-8")


@module(after=[reads], always_run=True)
def tidy(ctx: SyncContext) -> None:
    mark("tidy")
    os.write(2, b"written past Python\n")


@module(after=[reads])
def breaks(ctx: SyncContext) -> None:
    mark("breaks")
    if os.environ.get("EMBEDDED_BREAKS"):
        raise ValueError("broken on purpose")


pipeline = Pipeline("embedded", [tidy, breaks], params=Params)

if __name__ == "__main__":
    pipeline.main()
