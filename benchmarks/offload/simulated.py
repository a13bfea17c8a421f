"""How fast the whole protocol is simulated: events and seeds per CPU second, with codec, monitor and all oracles.

What the core alone would reach is told by samples: every millisecond of processor time, which file is at work.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path
from types import FrameType

import numpy as np
from simulation.faults import make_plan
from simulation.world import simulate

SEEDS = 60
AROUND = {"frames", "reader", "links", "fabric", "monitor", "agent_shell", "ports", "probing", "arrays", "buffers"}
"""Files of the room that are codec, transport, shells or checks; the others decide: sessions, calls, buffers, workers."""


class Samples:
    """Counts, while it is entered, how often the core was at work and how often anything was."""

    def __init__(self) -> None:
        self.core = self.all = 0

    def __enter__(self) -> Samples:
        signal.signal(signal.SIGPROF, self._take)
        signal.setitimer(signal.ITIMER_PROF, 0.001, 0.001)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)

    def _take(self, _: int, frame: FrameType | None) -> None:
        self.all += 1
        while frame is not None:
            file = Path(frame.f_code.co_filename)
            if file.parent.name == "offload" and file.parent.parent.name == "towline":
                self.core += file.stem not in AROUND
                return
            if file.parent.name == "simulation":
                return
            frame = frame.f_back


def rows() -> list[tuple[str, float, str, float | None, str]]:
    """Measure the first sixty seeds."""
    events = 0
    began = time.process_time()
    with np.errstate(all="ignore"), Samples() as samples:
        for seed in range(SEEDS):
            events += simulate(make_plan(seed)).clock.events
    seconds = time.process_time() - began
    share = samples.core / samples.all
    return [
        ("simulated events, codec and monitor on", events / seconds, "1/s", None, "measured"),
        ("simulated events, core alone, by samples", events / (seconds * share), "1/s", share, ">= 60000"),
        ("simulated seeds of 20 to 60 calls", SEEDS / seconds, "1/s", None, ">= 15 per CPU second"),
    ]
