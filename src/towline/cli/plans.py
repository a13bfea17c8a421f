"""The plans that can be read from here: of state folders, or of a server that a URL names."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from towline.cli.owners import living_owner
from towline.cli.reachability import without_password
from towline.cli.states import plan_in, plan_of, roots
from towline.errors.configuration import ConfigurationError, NothingHereError
from towline.errors.state import StateError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from towline.planning.records import PlanDocument

REDIS = ("redis", "rediss", "redis+unix")


class SeenPlan(NamedTuple):
    """One plan as it stands now. ``place``: the ``--state`` that names it, without a password."""

    place: str
    document: PlanDocument
    is_living: Callable[[], bool]


def seen_plans(state: str | None) -> tuple[list[SeenPlan], list[StateError]]:
    """Read the plans of the state that is named, or of every pipeline below ``.towline``; and why others cannot be read.

    Raises:
        NothingHereError: There is none.
        ConfigurationError: The URL is of no server that keeps state.
        StateLostError: The server cannot be asked.
    """
    if state is not None and "://" in state:
        if state.partition("://")[0] not in REDIS:
            raise ConfigurationError("state", without_password(state), "given", "give a folder or redis://HOST:PORT")
        return _on_server(state)
    plans: list[SeenPlan] = []
    damages: list[StateError] = []
    for root in roots(state):
        try:
            document = plan_of(root)
        except StateError as error:
            damages.append(error)
            continue
        if document is not None:
            plans.append(SeenPlan(str(root), document, partial(_has_owner, root)))
    return plans, damages


def _has_owner(root: Path) -> bool:
    return living_owner(root) is not None


def _on_server(url: str) -> tuple[list[SeenPlan], list[StateError]]:
    from towline.state.redis_store import RedisStateStore, pipelines_on

    async def read() -> tuple[list[SeenPlan], list[StateError]]:
        found: list[SeenPlan] = []
        damages: list[StateError] = []
        for name in await pipelines_on(url):
            store = RedisStateStore(url, unquote(name), retry_limit_s=0.0)
            try:
                document = await plan_in(store)
                living = await store.is_owned()
            except StateError as error:
                damages.append(error)
                continue
            finally:
                await store.close()
            if document is not None:
                found.append(SeenPlan(store.name, document, partial(bool, living)))
        return found, damages

    plans, damages = asyncio.run(read())
    if not plans and not damages:
        raise NothingHereError(without_password(url))
    return plans, damages
