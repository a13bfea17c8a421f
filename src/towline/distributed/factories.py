"""The coordinator that a URL names (DIST-03)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from towline.errors.configuration import ConfigurationError

if TYPE_CHECKING:
    from towline.coordination.contract import CoordinatorFactory

SCHEMES = ("memory:", "redis://", "rediss://", "redis+unix://")


def factory_of(
    coordinator: str | CoordinatorFactory, *, poll_s: float = 2.0, lost_after_s: float = 60.0
) -> CoordinatorFactory:
    """Return the factory behind a URL; one of the user's own is taken as it is.

    Raises:
        ConfigurationError: No coordinator has this scheme, or its extra is not installed.
    """
    if not isinstance(coordinator, str):
        return coordinator
    if coordinator.startswith("memory:"):
        from towline.coordination.memory import MemoryCoordinators

        return MemoryCoordinators()
    if coordinator.startswith(SCHEMES):
        try:
            from towline.coordination.redis.coordinator import RedisCoordinators
        except ModuleNotFoundError as error:
            raise ConfigurationError(
                "coordinator", "redis://...", "given", "install it with: pip install towline[redis]"
            ) from error
        return RedisCoordinators(coordinator, poll_s=poll_s, lost_after_s=lost_after_s)
    scheme = coordinator.partition(":")[0]
    raise ConfigurationError(
        "coordinator", f"{scheme}:...", "given", f"use one of {', '.join(SCHEMES)}, or a factory in Options"
    )
