"""The coordinator on a Redis or Valkey server (COORD-R)."""

from towline.coordination.redis.coordinator import RedisCoordinators

__all__ = ["RedisCoordinators"]
