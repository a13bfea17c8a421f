"""The helper that runs a test in every mode must not hide a difference between them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from engine import parity_program
from towline import Context, Pipeline, module, result_of
from towline.testing import clause, in_modes, run_in_mode, run_virtual
from towline.testing.modes import ModeName

MODES: tuple[ModeName, ...] = ("local", "strict", "process")


@clause("TEST-11")
def test_a_test_runs_once_per_mode_and_keeps_its_other_parameters() -> None:
    """What pytest gives a test still reaches it."""
    seen: list[tuple[str, int]] = []

    @in_modes(*MODES)
    def test(number: int, mode: str) -> str:
        seen.append((mode, number))
        return "the same"

    run_virtual(test(number=3))
    assert seen == [(mode, 3) for mode in MODES]


@clause("TEST-11")
def test_a_difference_between_modes_fails_and_names_the_mode() -> None:
    """An order that only holds locally is no order."""

    @in_modes("local", "strict")
    async def differs(mode: str) -> list[str]:
        return [mode]

    with pytest.raises(AssertionError, match="strict differs from local"):
        run_virtual(differs())

    @in_modes("local", "strict")
    async def breaks(mode: str) -> None:
        assert mode == "local"

    with pytest.raises(AssertionError) as failed:
        run_virtual(breaks())
    assert failed.value.__notes__ == ["in mode strict"]


def test_an_unknown_mode_is_refused() -> None:
    """A misspelt mode would run nothing."""
    with pytest.raises(ValueError, match="stirct"):
        in_modes("stirct")  # type: ignore[arg-type]


@clause("TEST-11")
@pytest.mark.anyio
async def test_modes_really_differ() -> None:
    """`strict` copies values, `process` runs bodies elsewhere: else the parity tests would compare a thing with itself."""

    @module
    async def gives(ctx: Context) -> list[int]:
        return [1]

    @module
    async def spoils(ctx: Context, value: list[int] = result_of(gives)) -> None:
        value.append(2)

    pipeline = Pipeline("gives", [spoils])
    assert (await run_in_mode(pipeline, "local")).value(gives) == [1, 2]
    assert (await run_in_mode(pipeline, "strict")).value(gives) == [1]
    pids = {mode: (await run_in_mode(parity_program.whereabouts, mode)).value(parity_program.where) for mode in MODES}
    assert pids["local"] == pids["strict"] != pids["process"]


@clause("TEST-01")
def test_the_kit_needs_no_test_framework() -> None:
    """Somebody else's runner may use it; pytest is loaded by the plugin alone."""
    code = (
        "import sys\n"
        "sys.modules['pytest'] = sys.modules['hypothesis'] = None\n"
        "import towline.testing as kit\n"
        "from towline.testing import *\n"
        "assert all(hasattr(kit, name) for name in kit.__all__)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
