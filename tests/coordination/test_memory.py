"""The in-memory coordinator keeps the whole contract."""

from __future__ import annotations

import pytest

from towline.testing import clause, run_virtual
from towline.testing.coordinator_contract import ContractCase, coordinator_cases
from towline.testing.coordinator_envs import MemoryEnv


@clause("COORD-C01", "COORD-C02", "COORD-C03", "COORD-C04", "COORD-C05", "COORD-C06", "COORD-C07", "COORD-C08")
@clause("COORD-C09", "COORD-C10", "COORD-C11", "COORD-C30", "COORD-C31", "COORD-C32", "COORD-C33", "COORD-C34")
@clause("COORD-C35", "COORD-C36", "COORD-C37", "COORD-C38", "COORD-C39", "COORD-C40", "COORD-C41", "COORD-C42")
@clause("COORD-C43", "COORD-C44", "COORD-C45", "COORD-C46", "COORD-C47", "COORD-C48", "COORD-C49", "COORD-C50")
@clause("COORD-C51", "COORD-C52", "COORD-C53", "COORD-C54", "COORD-C55", "COORD-C57", "COORD-C60", "COORD-C61")
@clause("COORD-C62", "COORD-C63", "COORD-C64", "COORD-C65", "COORD-C70", "COORD-C71", "COORD-C72", "COORD-C73")
@clause("COORD-C80", "COORD-C81", "COORD-C85")
@pytest.mark.parametrize("case", coordinator_cases(), ids=str)
def test_memory_keeps_the_contract(case: ContractCase) -> None:
    """Every other back end is measured against this one."""
    run_virtual(case.run(MemoryEnv(poll_s=2.0 if case.clause == "COORD-C85" else 1_000.0)))
