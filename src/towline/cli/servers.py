"""States that lie on a server: the plans there, and who runs them (PLAN-27, CTL-28)."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from urllib.parse import unquote

from towline.cli.plan_reading import plan_in
from towline.cli.reachability import without_password
from towline.errors.configuration import ConfigurationError, UnknownNameError
from towline.identity import suggestion
from towline.state.elsewhere import read_state_at

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from towline.planning.records import PlanDocument
    from towline.state.redis_store import RedisStateStore

T = TypeVar("T")

REDIS = ("redis", "rediss", "redis+unix")
NAMED_BY = ("TOWLINE_STATE", "TOWLINE_COORDINATOR")
"""Variables that may name the same server with what it takes to be let in."""


class OnServer(NamedTuple):
    """The state of one pipeline on a server. ``run_id``: of the run that a folder was told of, else empty."""

    url: str
    pipeline: str
    run_id: str = ""

    @property
    def flags(self) -> str:
        """The flags that name it, without a password."""
        return f"--state {_shown(self.url)} --pipeline {self.pipeline}"

    def ask(self, question: Callable[[RedisStateStore], Awaitable[T]]) -> T:
        """Ask its store something, once and without patience: nobody waits for an answer about the past.

        Raises:
            StateError: The server cannot be asked.
            ConfigurationError: The extra of that store is not installed.
        """

        async def asked() -> T:
            store = self.store()
            try:
                return await question(store)
            finally:
                await store.close()

        return asyncio.run(asked())

    def store(self) -> RedisStateStore:
        """Open its store. Raises as :meth:`ask`."""
        _refuse_without_client()
        from towline.state.redis_store import RedisStateStore

        return RedisStateStore(self.url, self.pipeline, retry_limit_s=0.0)

    def plan(self) -> PlanDocument | None:
        """Read the plan; ``None`` when there is none. Raises as :meth:`ask`."""
        return self.ask(plan_in)

    def is_owned(self) -> bool:
        """Say whether somebody runs it now. Raises as :meth:`ask`."""
        return self.ask(lambda store: store.holder()) is not None


def elsewhere(root: Path) -> OnServer | None:
    """Find out where the state of a folder lies, if that is a server."""
    found = read_state_at(root)
    return None if found is None else OnServer(_let_in(found.state), found.pipeline, found.run_id)


def states_on(url: str, pipeline: str | None = None) -> list[OnServer]:
    """List the states on a server that are meant: all, or that of one pipeline.

    Raises:
        ConfigurationError: The URL is of no server that keeps state.
        StateError: The server cannot be asked.
        UnknownNameError: It has no plan of that pipeline.
    """
    if not is_server(url):
        raise ConfigurationError("state", without_password(url), "given", "give a folder or redis://HOST:PORT")
    _refuse_without_client()
    from towline.state.redis_store import pipelines_on

    names = [unquote(name) for name in asyncio.run(pipelines_on(url))]
    if pipeline is not None and pipeline not in names:
        hint = suggestion(pipeline, names) or f"It has plans of {', '.join(names) or 'none'}."
        raise UnknownNameError("pipeline", pipeline, without_password(url), hint)
    return [OnServer(url, name) for name in names if pipeline in (None, name)]


def is_server(url: str) -> bool:
    """Whether a URL names a server that can keep state."""
    return url.partition("://")[0] in REDIS


def _let_in(url: str) -> str:
    """Return the URL as a variable spells it, with a password, if one names the same server."""
    for variable in NAMED_BY:
        named = os.environ.get(variable, "")
        if is_server(named) and _shown(named) == _shown(url):
            return named
    return url


def _shown(url: str) -> str:
    _refuse_without_client()
    from towline.access.redis_server import RedisServer

    return RedisServer(url).shown


def _refuse_without_client() -> None:
    try:
        import redis  # noqa: F401 - asked for, not used: it is an extra
    except ModuleNotFoundError as error:
        advice = "install it with: pip install towline[redis]"
        raise ConfigurationError("state", "redis://...", "on a server", advice) from error
