"""The contract kit for coordinators: every COORD-C clause as a case that runs on any back end (decision 16).

Write a :class:`CoordinatorEnv` for your back end, then run every case on a fresh one:

    @pytest.mark.parametrize("case", coordinator_cases(), ids=str)
    def test_contract(case): asyncio.run(case.run(MyEnv()))

No test framework is needed; a case fails with ``AssertionError``.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from towline.coordination.contract import MasterCoordinator, WorkerCoordinator


class CoordinatorEnv(Protocol):
    """One fresh run on the back end under test; its author writes this."""

    run_id: str
    worker_timeout_s: float
    """The lease that ``master()`` opens the run with, unless told otherwise."""

    async def master(self, **opening: object) -> MasterCoordinator:
        """Make a coordinator and open the run with :func:`opening_of` these fields over the env's own."""
        ...

    async def worker(self) -> WorkerCoordinator:
        """Make a worker's coordinator with a connection of its own; registers nothing."""
        ...

    async def pass_time(self, seconds: float) -> None:
        """Let the back end's clock advance."""
        ...

    async def waiting(self, call: str) -> None:
        """Return once a waiter in this method has subscribed and read: what wakes it now is a notification."""
        ...

    async def aclose(self) -> None:
        """Close everything that was made."""
        ...


class ContractCase(msgspec.Struct, frozen=True):
    """One behaviour of one or more clauses."""

    clauses: tuple[str, ...]
    name: str
    body: Callable[[CoordinatorEnv], Awaitable[None]]

    @property
    def clause(self) -> str:
        """The first of the clauses that it proves."""
        return self.clauses[0]

    async def run(self, env: CoordinatorEnv) -> None:
        """Run the case on a fresh env and close it.

        Raises:
            AssertionError: The back end breaks the clause.
        """
        try:
            await self.body(env)
        finally:
            await env.aclose()

    def __str__(self) -> str:
        return f"{self.clause}-{self.name}"


_CASES: list[ContractCase] = []

_TOPICS = ("registration", "queue", "claims", "leases", "outcomes", "runs", "feed", "use")


def case(*clauses: str) -> Callable[[Callable[[CoordinatorEnv], Awaitable[None]]], Callable[..., Awaitable[None]]]:
    """Add a function to the kit as the proof of these clauses."""

    def add(body: Callable[[CoordinatorEnv], Awaitable[None]]) -> Callable[..., Awaitable[None]]:
        _CASES.append(ContractCase(clauses, body.__name__, body))
        return body

    return add


def coordinator_cases(*, skip: Collection[str] = ()) -> Sequence[ContractCase]:
    """Return all cases but those of the skipped clauses, in the order of the clauses."""
    for topic in _TOPICS:
        importlib.import_module(f"towline.testing.contract_cases.{topic}")
    kept = [entry for entry in _CASES if not set(entry.clauses) & set(skip)]
    return sorted(kept, key=lambda entry: (entry.clause, entry.name))
