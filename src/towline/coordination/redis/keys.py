"""The keys of one run. All carry its hash tag, so that a run lives in one slot of a cluster (``coordination.md`` 5)."""

from __future__ import annotations

KINDS = (
    "meta",
    "payload",
    "index",
    "queue",
    "buckets",
    "leases",
    "expiry",
    "outcomes",
    "workers",
    "status",
    "alive",
    "lastclaim",
    "fits",
    "feed",
    "events",
    "eventseq",
    "idle",
)
"""In the order that every script declares them."""


class RunKeys:
    """Names of the keys and channels of one run."""

    def __init__(self, prefix: str, run_id: str) -> None:
        self.prefix = prefix
        self.base = f"{prefix}:run:{{{run_id}}}:"
        self.all = tuple(self.base + kind for kind in KINDS)
        self.outcomes = self.base + "outcomes"
        self.feed = self.base + "feed"
        self.events = self.base + "events"

    def live_runs(self, program: str) -> str:
        """The program's live runs, outside the run's own tag: fleet workers find runs by it."""
        return f"{self.prefix}:runs:{program}"

    def channels(self, watch_key: str) -> tuple[str, ...]:
        """Return the channels that tell about a watch key of :class:`~towline.coordination.link.Link`."""
        kind, _, rest = watch_key.partition("@")
        if kind == "work":
            return (self.base + (f"wake:{rest}" if rest else "wake"), self.base + "signal")
        return (self.base + watch_key,)
