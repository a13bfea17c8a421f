"""The order of tables: the tasks of an expanded module stand below it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Keyed(Protocol):
    """A row of a table. A join has the id of its module; its children come later, with the same module."""

    @property
    def id(self) -> str: ...

    @property
    def module(self) -> str: ...


RowT = TypeVar("RowT", bound=Keyed)


def under_their_module(rows: Iterable[RowT]) -> Iterator[RowT]:
    """Give the rows in their order, but the children of an ``each`` module right behind it.

    In a plan they stand at its end, for they came last.
    """
    given = list(rows)
    joins = {row.module for row in given if row.id == row.module}
    children: dict[str, list[RowT]] = {}
    for row in given:
        if row.id != row.module and row.module in joins:
            children.setdefault(row.module, []).append(row)
    for row in given:
        if row.id == row.module:
            yield row
            yield from children.get(row.module, ())
        elif row.module not in joins:
            yield row
