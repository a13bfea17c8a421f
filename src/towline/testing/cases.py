"""Cases of a contract kit: behaviours that every back end of one kind must show (TEST-10)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence


class Env(Protocol):
    """A fresh instance of the back end under test."""

    async def aclose(self) -> None:
        """Close everything that was made."""
        ...


E = TypeVar("E", bound=Env)


class Case(Generic[E]):
    """One behaviour, of one or more clauses."""

    def __init__(self, clauses: tuple[str, ...], body: Callable[[E], Awaitable[None]]) -> None:
        self.clauses, self.name, self._body = clauses, body.__name__, body

    async def run(self, env: E) -> None:
        """Run on a fresh env and close it. Raises ``AssertionError`` when the back end breaks the clause."""
        try:
            await self._body(env)
        finally:
            await env.aclose()

    def __str__(self) -> str:
        return f"{self.clauses[0]}-{self.name}"


class Kit(Generic[E]):
    """Collects the functions of one kit; a function's clauses are those of its ``@clause`` mark."""

    def __init__(self) -> None:
        self._cases: list[Case[E]] = []

    def case(self, body: Callable[[E], Awaitable[None]]) -> Callable[[E], Awaitable[None]]:
        self._cases.append(Case(body.__dict__["clauses"], body))
        return body

    def cases(self, skip: Collection[str]) -> Sequence[Case[E]]:
        return [case for case in self._cases if not set(case.clauses) & set(skip)]
