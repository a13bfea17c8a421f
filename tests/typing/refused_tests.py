"""Mistakes in tests of modules. The type checkers must refuse each line marked as refused, and no other."""

from __future__ import annotations

from pathlib import Path

from towline import Context, Outcome, module
from towline.testing import FakeContext, FakeSyncContext, ModuleTester, failed, succeeded
from usage import Deploy, Lockfile, Publish, Report, build, check, judge, restore, shout, summarise

async def tests() -> None:
    await build(FakeSyncContext())  # refused: an async body gets a Context
    await build(FakeContext(), lockfil=Lockfile(Path()))  # refused: misspelt keyword
    await build(FakeContext(), lockfile="uv.lock")  # refused: a Lockfile
    shout(FakeContext())  # refused: a sync body gets a SyncContext
    await check(FakeContext())  # refused: the axis is missing
    ModuleTester(Deploy)  # refused: which Deploy?
    ModuleTester(check)  # refused: which key?
    ModuleTester(build, matrix={})  # refused: build has one task
    ModuleTester(build).with_result(restore, "text")  # refused: restore gives a Lockfile
    ModuleTester(summarise).with_result(check, Report("3", 0))  # refused: a list
    ModuleTester(judge).with_outcome(build, succeeded(3))  # refused: build gives a Wheel
    ModuleTester(judge).with_outcome(check, failed(OSError()))  # refused: a list
    text: Outcome[str] = await ModuleTester(Publish).run()  # refused: Publish gives None
