"""The plans that can be read from here: of state folders, or of a server that a URL names."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from towline.cli.reachability import without_password
from towline.cli.servers import states_on
from towline.cli.states import is_living, plan_of, roots
from towline.errors.configuration import NothingHereError
from towline.errors.state import StateError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from towline.cli.states import Where
    from towline.planning.records import PlanDocument


class SeenPlan(NamedTuple):
    """One plan as it stands now. ``flags``: those that name it, without a password. ``root``: with the logs, if here."""

    flags: str
    document: PlanDocument
    is_living: Callable[[], bool]
    root: Path | None = None


def seen_plans(where: Where) -> tuple[list[SeenPlan], list[StateError]]:
    """Read the plans of the states that are meant; and why others cannot be read.

    Raises:
        NothingHereError: There is none.
        UnknownNameError: There is none of the pipeline that is named.
        ConfigurationError: The URL is of no server that keeps state.
        StateLostError: The server cannot be asked.
    """
    if where.state is not None and where.is_url:
        return _on_server(where.state, where.pipeline)
    plans: list[SeenPlan] = []
    damages: list[StateError] = []
    for root in roots(where):
        try:
            document = plan_of(root)
        except StateError as error:
            damages.append(error)
            continue
        if document is not None:
            plans.append(SeenPlan(f"--state {root}", document, partial(is_living, root), root))
    return plans, damages


def _on_server(url: str, pipeline: str | None) -> tuple[list[SeenPlan], list[StateError]]:
    found: list[SeenPlan] = []
    damages: list[StateError] = []
    for one in states_on(url, pipeline):
        try:
            document, living = one.plan(), one.is_owned()
        except StateError as error:
            damages.append(error)
            continue
        if document is not None:
            found.append(SeenPlan(one.flags, document, partial(bool, living)))
    if not found and not damages:
        raise NothingHereError(without_password(url))
    return found, damages
