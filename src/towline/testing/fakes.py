"""Contexts with which a function module is called as a plain function (TEST-02)."""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from inspect import isawaitable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from towline.errors.testing import UnscriptedCallError
from towline.modules.context import Context, SyncContext
from towline.modules.doors import Attempt
from towline.state.cursors import CursorStore
from towline.state.memory import MemoryStore
from towline.state.steps import Step
from towline.state.sync_cursor import SyncCursor
from towline.testing.script import Script, Scripted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
    from os import PathLike

    from towline.artifacts.records import ArtifactRef
    from towline.masking import Secret
    from towline.modules.outcomes import Finding

PLAN_ID = "00000001-00000000"


class FakeDoors:
    """Doors without an engine: commands and secrets from the script, cursors and steps in memory."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._store = MemoryStore()
        self._steps: dict[str, Any] = {}
        self.progress_shown: list[tuple[int, int | None]] = []

    def log(self, attempt: Attempt) -> logging.Logger:
        return logging.getLogger("towline.testing")

    def progress(self, attempt: Attempt, done: int, total: int | None) -> None:
        self.progress_shown.append((done, total))

    def finding(self, attempt: Attempt, finding: Finding) -> None:
        self._script.findings.append(finding)

    def secret(self, attempt: Attempt, name: str) -> Secret:
        return self._script.secret(name)

    def mask(self, attempt: Attempt, value: str) -> None:
        """Nothing is shown anywhere, so nothing is masked."""

    async def run(self, attempt: Attempt, argv: tuple[str | PathLike[str], ...], options: Mapping[str, Any]) -> Any:
        return self._script.run(argv, options)

    async def run_step(
        self, attempt: Attempt, name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if name not in self._steps:
            value = fn(*args, **kwargs)
            self._steps[name] = await value if isawaitable(value) else value
        return self._steps[name]

    @asynccontextmanager
    async def open_step(self, attempt: Attempt, name: str, result: Any) -> AsyncIterator[Step[Any]]:
        step: Step[Any] = Step(attempt.task_id, name, has_value=result is not None)
        if name in self._steps:
            step.done = True
            if result is not None:
                step.set(self._steps[name])
        yield step
        self._steps[name] = step.value

    async def open_cursor(self, attempt: Attempt, options: Mapping[str, Any]) -> Any:
        return await CursorStore(self._store).open(attempt.task_id, attempt.epoch, PLAN_ID, **options)

    def open_sync_cursor(self, attempt: Attempt, options: Mapping[str, Any]) -> Any:
        cursor = self.blocking(attempt, partial(self.open_cursor, attempt, options))
        return SyncCursor(cursor, partial(self.blocking, attempt))

    async def put_artifact(self, attempt: Attempt, name: str, path: str | PathLike[str]) -> ArtifactRef:
        self._refuse("artifact store", name)

    async def get_artifact(self, attempt: Attempt, reference: ArtifactRef, into: str | PathLike[str]) -> Path:
        self._refuse("artifact", reference.name)

    def find_artifacts(self, attempt: Attempt, module: str, name: str) -> ArtifactRef | list[ArtifactRef]:
        self._refuse("artifact", f"{module}/{name}")

    def offload(self, attempt: Attempt) -> Any:
        self._refuse("offload runtime", "ctx.offload")

    def _refuse(self, kind: str, asked: str) -> NoReturn:
        raise UnscriptedCallError(kind, f"{asked} (use ModuleTester)", ())

    def blocking(self, attempt: Attempt, call: Callable[[], Awaitable[Any]]) -> Any:
        """Run a door to its end on a loop of its own: a test may call a sync body inside a running loop."""

        async def to_the_end() -> Any:
            return await call()

        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, to_the_end()).result()


class _Fake(Scripted):
    def _prepare(self) -> tuple[Attempt, FakeDoors]:
        self._script = Script()
        folder = tempfile.mkdtemp(prefix="towline-test-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        attempt = Attempt(task_id="test", module="test", run_id="test", worker_id="test", workdir=Path(folder))
        self._attempt = attempt
        return attempt, FakeDoors(self._script)

    def with_params(self, params: object, /) -> Any:
        """Give the parameters of the run."""
        self._attempt.params = params
        return super().with_params(params)


class FakeContext(_Fake, Context):
    """A context with which an async function module is called as a plain function."""

    def __init__(self) -> None:
        Context.__init__(self, *self._prepare())


class FakeSyncContext(_Fake, SyncContext):
    """The same for a sync function module."""

    def __init__(self) -> None:
        SyncContext.__init__(self, *self._prepare())
