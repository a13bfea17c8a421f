"""Tests of their own modules as users would write them; the type checkers must accept every line."""

from __future__ import annotations

from pathlib import Path
from typing import assert_type

from towline import Outcome, Succeeded
from towline.testing import FakeContext, FakeSyncContext, ModuleTester, failed, succeeded
from usage import (
    Deploy,
    Lockfile,
    Publish,
    Release,
    Report,
    Wheel,
    build,
    check,
    notify,
    pack,
    restore,
    shout,
    spain,
)

async def test_body_is_a_plain_function() -> None:
    """A function module is called with the inputs that the engine would give."""
    ctx = FakeContext().command("git", "describe", stdout="v1").command("cat", "uv.lock")
    wheel = await build(ctx, lockfile=Lockfile(Path("uv.lock")))
    assert_type(wheel, Wheel)
    assert_type(shout(FakeSyncContext(), "hi"), str)
    assert_type(pack(FakeSyncContext(), Path("a.csv")), int)
    assert_type(await Deploy("eu").run(ctx), str)


async def test_with_the_real_runner() -> None:
    """Timeouts, retries and conditions are the real ones; inputs and commands are given."""
    outcome = await (
        ModuleTester(build)
        .with_result(restore, Lockfile(Path("uv.lock")))
        .command("git", "describe", stdout="v1")
        .run()
    )
    match outcome:
        case Succeeded(wheel):
            assert_type(wheel, Wheel)
        case _:
            raise AssertionError(outcome)

    told = await (
        ModuleTester(notify)
        .with_outcome(Publish, failed(OSError("disk full")))
        .with_outcome(check, [succeeded(Report("3.11", 0))])
        .run()
    )
    assert_type(told, Outcome[str])
    await ModuleTester(check, matrix={"python": "3.11"}).with_params(Release()).run()
    await ModuleTester(Deploy("eu")).with_result(build, Wheel(Path("x"))).run()
    await ModuleTester(Publish).with_result(spain, [1, 2]).run()
