"""One program with tasks of every kind, one state, several starts: what the tests of resuming share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pytest

from engine.stores import Moments, World, use_store
from towline import Context, Options, Pipeline, module
from towline.testing import SeenRun, run_in_mode

Resume = Literal["crash", "auto", "never"]


@dataclass(frozen=True)
class Params:
    """Parameters of the runs here."""

    region: str = "eu"


class Case:
    """One program, one state, several starts. ``broken`` fails while its name is in ``bad``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, resume: Resume = "crash", **options: Any) -> None:
        self.world, self.bad = World(), {"broken"}
        self.store = Moments(self.world)
        self.resume: Resume = resume
        self.options = Options(keep_going=True, **options)
        use_store(monkeypatch, self.store)

    def pipeline(self, *more: Any, name: str = "case") -> Pipeline[Params]:
        world, bad = self.world, self.bad

        @module
        async def good(ctx: Context) -> int:
            world.enter("good")
            return 1

        @module
        async def broken(ctx: Context) -> int:
            world.enter("broken")
            if "broken" in bad:
                raise ValueError("broken")
            return 2

        @module(after=[broken])
        async def behind(ctx: Context) -> None:
            world.enter("behind")

        @module(ignore_failure=True)
        async def shrugged(ctx: Context) -> None:
            world.enter("shrugged")
            raise ValueError("whatever")

        @module(at_most_once=True)
        async def once(ctx: Context) -> None:
            world.enter("once")
            if "once" in bad:
                raise ValueError("sent or not?")

        @module(run_if=lambda task: "condition" not in bad)
        async def wanted(ctx: Context) -> None:
            world.enter("wanted")

        @module(always_run=True, after=[broken])
        async def clean(ctx: Context) -> None:
            world.enter("clean")

        modules = [good, behind, shrugged, once, wanted, clean, *more]
        return Pipeline(name, modules, params=Params, resume=self.resume, options=self.options)

    async def start(self, pipeline: Pipeline[Params] | None = None, **request: Any) -> SeenRun:
        self.world.entered.clear()
        return await run_in_mode(pipeline or self.pipeline(), **request)

    @property
    def entered(self) -> set[str]:
        return set(self.world.entered)


ALL = {"good", "broken", "behind", "shrugged", "once", "wanted", "clean"}
"""Its tasks."""
