"""The order of tables: the tasks of an expanded module stand below it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from towline.planning.records import FINAL_STATES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Keyed(Protocol):
    """A row of a table. A join has the id of its module; its children come later, with the same module."""

    @property
    def id(self) -> str: ...

    @property
    def module(self) -> str: ...


RowT = TypeVar("RowT", bound=Keyed)


class Counted(Keyed, Protocol):
    """A row of a plan."""

    @property
    def join(self) -> bool: ...

    @property
    def state(self) -> str: ...


CountedT = TypeVar("CountedT", bound=Counted)


def counted(rows: Iterable[CountedT]) -> Iterator[CountedT]:
    """Give the rows that every count of tasks is of (PLAN-62).

    A join is left out, for its tasks are counted; but one that ended and has none, because its source failed or
    its items could not be read, stands for itself.
    """
    given = list(rows)
    expanded = {row.module for row in given if row.id != row.module}
    for row in given:
        if not row.join or stands_for_itself(row.state, is_expanded=row.module in expanded):
            yield row


def stands_for_itself(state: str, *, is_expanded: bool) -> bool:
    """Say whether a join in this state counts as a task."""
    return not is_expanded and state in FINAL_STATES and state != "succeeded"


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
