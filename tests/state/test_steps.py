"""Steps: done once over attempts, claims and runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from state.envs import PLAN_ID
from towline.errors import CursorCorruptError, StepReusedError, StepValueError
from towline.errors.state import LeaseLostError
from towline.state import ABSENT
from towline.state.directory import DirectoryStore
from towline.state.memory import MemoryStore
from towline.state.steps import StepStore
from towline.testing import TestClock, clause
from towline.testing.killpoints import KillPoints

encode, decode = msgspec.json.encode, msgspec.json.decode


def steps_of(store: Any, epoch: int = 1, attempt: int = 1, plan_id: str = PLAN_ID, **options: Any) -> StepStore:
    options.setdefault("check", lambda: None)
    return StepStore(store, "t", epoch, plan_id, attempt=attempt, clock=TestClock(), **options)


async def once(steps: StepStore, name: str, call: Any) -> Any:
    return await steps.once(name, call, encode=encode, decode=decode)


@clause("CUR-14")
@pytest.mark.parametrize("kind", ["memory", "directory"])
def test_a_step_is_called_once_over_attempts_claims_and_stores(kind: str, tmp_path: Path) -> None:
    """An e-mail is sent once, however often the task is retried."""
    calls: list[str] = []

    async def main() -> None:
        store: Any = MemoryStore() if kind == "memory" else DirectoryStore(tmp_path)

        async def send() -> dict[str, int]:
            calls.append("send")
            return {"id": 7}

        def fail() -> None:
            calls.append("fail")
            raise OSError("down")

        first = steps_of(store)
        assert await once(first, "mail", send) == {"id": 7}
        with pytest.raises(OSError, match="down"):
            await once(first, "notify", fail)
        for epoch, attempt in ((1, 2), (2, 1)):
            again = steps_of(store, epoch, attempt)
            assert await once(again, "mail", send) == {"id": 7}
            with pytest.raises(OSError, match="down"):
                await once(again, "notify", fail)
        assert calls == ["send", "fail", "fail", "fail"]
        assert [key async for key in store.list("steps/")] == ["steps/t/mail.json"]

    asyncio.run(main())


@clause("CUR-14", "TEST-08")
def test_a_kill_anywhere_repeats_a_step_at_most_once(tmp_path: Path) -> None:
    """Its value is all there or not at all."""

    async def run(root: Path, calls: list[int], files: Any = None, epoch: int = 1) -> Any:
        return await once(steps_of(DirectoryStore(root, files=files), epoch), "s", lambda: calls.append(1) or [1, 2])

    for point in KillPoints():
        root, calls = tmp_path / str(point.number), []
        with point.watching():
            asyncio.run(run(root, calls, point.files))
        assert asyncio.run(run(root, calls, epoch=2)) == [1, 2]
        assert len(calls) in (1, 2)


@clause("CUR-15")
def test_the_open_form_is_done_when_it_is_left_without_error() -> None:
    """Work that is no single call."""

    async def main() -> None:
        store = MemoryStore()
        with pytest.raises(KeyError):  # noqa: PT012 - leaving the block by an error is the case
            async with steps_of(store).open("mail", encode=encode, decode=decode) as step:
                step.set(1)
                raise KeyError("before the end")
        async with steps_of(store).open("mail", encode=encode, decode=decode) as step:
            assert not step.done
            with pytest.raises(StepValueError, match="not set"):
                _ = step.value
            step.set({"id": 7})
        async with steps_of(store, 2).open("mail", encode=encode, decode=decode) as step:
            assert step.done
            assert step.value == {"id": 7}
        async with steps_of(store, 2).open("told") as told:
            assert not told.done
        async with steps_of(store, 3).open("told") as told:
            assert told.done
            with pytest.raises(StepValueError):
                told.set(1)

    asyncio.run(main())


@clause("CUR-15", "CUR-16")
def test_a_step_with_a_value_that_ends_without_one_is_refused() -> None:
    """Else a resume would have nothing to give."""

    async def main() -> None:
        store = MemoryStore()
        with pytest.raises(StepValueError):
            async with steps_of(store).open("mail", encode=encode, decode=decode):
                """Forgot to set it."""
        assert [key async for key in store.list("steps/")] == []

    asyncio.run(main())


@clause("CUR-16")
def test_values_that_json_cannot_hold_and_reused_names_are_refused() -> None:
    """Both would give a wrong value after a resume."""

    async def main() -> None:
        store = MemoryStore()
        steps = steps_of(store)
        with pytest.raises(StepValueError, match="object"):
            await once(steps, "a", lambda: object())
        with pytest.raises(StepReusedError, match="'a'"):
            await once(steps, "a", lambda: 1)
        assert await once(steps, "b/c..", lambda: 1) == 1
        assert [key async for key in store.list("steps/")] == ["steps/t/b%2Fc.%2E.json"]

    asyncio.run(main())


@clause("CUR-05", "CUR-16")
def test_steps_are_fenced() -> None:
    """A worker that lost its task must not leave a value for its successor to trust."""

    async def main() -> None:
        store = MemoryStore()
        older = steps_of(store, 1)
        assert await once(older, "a", lambda: 1) == 1

        async def taken_over() -> int:
            assert await once(steps_of(store, 2), "a", lambda: 2) == 1
            return 3

        with pytest.raises(LeaseLostError):
            await once(older, "b", taken_over)
        with pytest.raises(LeaseLostError):
            await once(steps_of(store, 1), "c", lambda: 1)
        assert await once(steps_of(store, 2), "b", lambda: 4) == 4
        newer_plan = steps_of(store, 1, plan_id="00000002-00000000")
        assert await once(newer_plan, "a", lambda: 5) == 5, "a step of an older plan counts as not done"

    asyncio.run(main())


@clause("CUR-13")
def test_a_damaged_step_fails_the_task() -> None:
    """Calling again by guess could do the effect twice."""

    async def main() -> None:
        store = MemoryStore()
        await store.write("steps/t/a.json", b'{"schema":1,', ABSENT)
        with pytest.raises(CursorCorruptError, match=r"steps/t/a\.json.*that step runs again"):
            await once(steps_of(store), "a", lambda: 1)
        await once(steps_of(store), "b", lambda: 1_000)
        store.documents["steps/t/b.json"] = store.documents["steps/t/b.json"].replace(b"1000", b"1001")
        with pytest.raises(CursorCorruptError, match=r"steps/t/b\.json.*checksum"):
            await once(steps_of(store, epoch=2), "b", lambda: 1)

    asyncio.run(main())


@clause("CUR-08")
def test_a_cancelled_body_keeps_the_step_that_it_has_just_done() -> None:
    """The effect happened; only an attempt that is over may not write."""
    cancelled, ended = False, False

    def check() -> None:
        if cancelled:
            raise asyncio.CancelledError

    def check_ended() -> None:
        if ended:
            raise RuntimeError("over")

    def work() -> int:
        nonlocal cancelled
        cancelled = True
        return 1

    async def main() -> None:
        nonlocal ended
        store = MemoryStore()
        steps = steps_of(store, check=check, check_ended=check_ended)
        assert await once(steps, "a", work) == 1
        with pytest.raises(asyncio.CancelledError):
            await once(steps, "b", work)

    asyncio.run(main())
