"""Workers that are not told where the coordinator is: the master says so in a place of the user's own (COORD-C87)."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from towline.clock import moment
from towline.coordination.records import MasterEndpoint
from towline.distributed.factories import factory_of
from towline.errors.configuration import ConfigurationError
from towline.errors.coordination import RunUnknownError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from towline.clock import Clock
    from towline.coordination.contract import (
        CoordinatorFactory,
        MasterCoordinator,
        MasterDiscovery,
        WorkerCoordinator,
    )
    from towline.coordination.records import RunOpening

_log = logging.getLogger("towline.master")

LOOK_S = 1.0
PUBLISHED_PER_LIFE = 3


def without_user(url: str) -> str:
    """Return a URL without user and password: what is published is read by others, who have their own."""
    scheme, separator, rest = url.partition("://")
    place, slash, path = rest.partition("/")
    return f"{scheme}{separator}{place.rpartition('@')[2]}{slash}{path}"


class Announcer:
    """Keeps a master's endpoint known for as long as it leads the run.

    Args:
        life_s: How long an endpoint is worth something without being published again: the master timeout.
    """

    def __init__(
        self, discovery: MasterDiscovery, url: str, opening: RunOpening, *, life_s: float, clock: Clock
    ) -> None:
        self._discovery, self._url, self._opening = discovery, without_user(url), opening
        self._life_s, self._clock = life_s, clock
        self._publishing: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to publish."""
        self._publishing = asyncio.get_running_loop().create_task(self._publish_on(), name="towline-announcer")

    async def stop(self) -> None:
        """Withdraw what was published; twice without harm. Trouble is a warning: the endpoint expires."""
        publishing, self._publishing = self._publishing, None
        if publishing is None:
            return
        publishing.cancel()
        await asyncio.wait([publishing])
        try:
            await self._discovery.withdraw()
        except Exception as error:  # noqa: BLE001 - it is the user's code, and the run has ended
            _log.warning("the endpoint of %s could not be withdrawn: %s", self._opening.run_id, error)

    async def _publish_on(self) -> None:
        while True:
            try:
                await self._discovery.publish(self._endpoint())
            except Exception as error:  # noqa: BLE001 - it is the user's code; workers that know the way go on
                _log.warning("the endpoint of %s could not be published: %s", self._opening.run_id, error)
            await asyncio.sleep(self._life_s / PUBLISHED_PER_LIFE)

    def _endpoint(self) -> MasterEndpoint:
        opening = self._opening
        return MasterEndpoint(
            run_id=opening.run_id,
            program=opening.program,
            urls=(self._url,),
            owner_epoch=opening.owner_epoch,
            expires_at=moment(self._clock.now() + self._life_s),
        )


class DiscoveredCoordinators:
    """Makes workers' coordinators from the endpoint that a run's master has published.

    Args:
        limit_s: How long a worker waits for the endpoint: the registration timeout.
    """

    def __init__(self, discovery: MasterDiscovery, *, limit_s: float, poll_s: float, lost_after_s: float) -> None:
        self._discovery, self._limit_s = discovery, limit_s
        self._poll_s, self._lost_after_s = poll_s, lost_after_s

    async def create_master(self, run_id: str) -> MasterCoordinator:
        """Refuse: a master has to be told where the coordinator is."""
        raise ConfigurationError("coordinator", None, "only a discovery", "name it for the master: --coordinator URL")

    async def create_worker(self, run_id: str) -> WorkerCoordinator:
        """Wait for the endpoint, then make the coordinator that it names.

        Raises:
            RunUnknownError: No endpoint was published in time.
        """
        factory = await self._found(run_id)
        return await factory.create_worker(run_id)

    async def live_runs(self, program: str) -> Sequence[str]:
        """A discovery knows runs by their id alone."""
        return ()

    async def _found(self, run_id: str) -> CoordinatorFactory:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._limit_s
        while True:
            endpoint = await self._discovery.find(run_id)
            if endpoint is not None:
                return factory_of(endpoint.urls[0], poll_s=self._poll_s, lost_after_s=self._lost_after_s)
            if loop.time() >= deadline:
                raise RunUnknownError(run_id, "the discovery of the program")
            await asyncio.sleep(LOOK_S)
