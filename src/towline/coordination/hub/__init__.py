"""The coordinator that a master hosts itself: sessions of workers over connections to its process (COORD-H)."""

from towline.coordination.hub.client import HubCoordinator
from towline.coordination.hub.coordinators import HubCoordinators
from towline.coordination.hub.hub import Hub
from towline.coordination.hub.loopback import LoopbackListener

__all__ = ["Hub", "HubCoordinator", "HubCoordinators", "LoopbackListener"]
