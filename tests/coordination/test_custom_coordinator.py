"""The example coordinator, and with it `LedgerCoordinator`, keeps the whole contract."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path
from typing import Any

import pytest

from towline.coordination.client import LinkedCoordinator
from towline.coordination.document import LedgerCoordinator
from towline.testing import clause
from towline.testing.coordinator_contract import ContractCase, coordinator_cases
from towline.testing.coordinator_envs import LinkedEnv

EXAMPLE = Path(__file__).parents[2] / "examples" / "custom_coordinator" / "shared_directory.py"


def _example() -> Any:
    spec = importlib.util.spec_from_file_location("shared_directory", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


example = _example()


class ShiftedDocument(example.DirectoryDocument):  # type: ignore[misc]
    """The example's document, whose clock the test moves."""

    def __init__(self, folder: Path, env: DirectoryEnv) -> None:
        super().__init__(folder, look_every_s=0.005)
        self._env = env

    async def now_ms(self) -> int:
        now: int = await super().now_ms()
        return now + self._env.shift_ms


class DirectoryEnv(LinkedEnv):
    """What an author of a coordinator writes to run the kit."""

    def __init__(self, folder: Path, *, poll_s: float) -> None:
        super().__init__()
        self.folder, self.poll_s = folder, poll_s
        self.shift_ms = 0

    async def make(self, *, master: bool) -> LinkedCoordinator:
        document = ShiftedDocument(self.folder / self.run_id, self)
        return LedgerCoordinator(document, self.run_id, poll_s=self.poll_s)

    async def pass_time(self, seconds: float) -> None:
        self.shift_ms += round(seconds * 1000)


@clause("COORD-C86")
@pytest.mark.parametrize("case", coordinator_cases(), ids=str)
def test_the_example_keeps_the_contract(case: ContractCase, tmp_path: Path) -> None:
    """Three methods and a folder are a whole coordinator."""
    poll_s = 0.2 if case.clause == "COORD-C85" else 30.0
    asyncio.run(case.run(DirectoryEnv(tmp_path, poll_s=poll_s)))


@clause("COORD-C86")
def test_the_example_is_short() -> None:
    """What an author has to write stays under 150 lines."""
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) < 150


@clause("COORD-C87", "COORD-C82")
def test_live_runs_are_found(tmp_path: Path) -> None:
    """A fleet worker finds the runs of its program by the factory alone."""

    async def scenario() -> None:
        factory = example.DirectoryCoordinators(tmp_path)
        from towline.testing.contract_cases.scene import opening_of

        assert await factory.live_runs("p.py:p") == []
        master = await factory.create_master("run-1")
        await master.open_run(opening_of("run-1", 30.0))
        assert await factory.live_runs("p.py:p") == ["run-1"]
        assert await factory.live_runs("other") == []
        await master.complete()
        assert await factory.live_runs("p.py:p") == []
        await master.aclose()

    asyncio.run(scenario())
