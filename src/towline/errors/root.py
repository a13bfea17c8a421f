"""The root of every Towline error, and how one survives a trip to another process."""

from __future__ import annotations

from typing import ClassVar


class TowlineError(Exception):
    """Anything that Towline itself reports.

    A subclass passes its fields to ``super().__init__`` in the order of its own parameters, so that
    ``type(error)(*error.args)`` rebuilds it in another process, and says in ``__str__`` what happened,
    with which values, and what to do.

    ``exit_code`` is what a process that ends with this error reports: 1 a task failed, 2 the call or
    the declaration is wrong and nothing ran, 3 blocked, 4 state, coordinator or master lost.
    """

    exit_code: ClassVar[int] = 1
