"""What everyone who looks is told, in one order."""

from towline.events.log import EventLog
from towline.events.records import Event

__all__ = ["Event", "EventLog"]
