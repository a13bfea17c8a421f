"""Which thread kernels are so short that handing one to a thread costs more than to run it. Pure."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from towline.offload.work import Work

QUICK_S = 100e-6
"""About what it costs to wake a thread, and the loop when it is done."""
PROVEN_RUNS = 16
"""So many quick runs in a row are asked for; twice as many after a run in the loop that was not quick."""
QUICK_BYTES = 64 * 1024
REMEMBERED = 256


class QuickKernels:
    """Remembers, by kernel and parameters, how many of the latest runs in a row were quick.

    A kernel that took its time in the loop has kept an agent from answering for that long, so each such run
    doubles what it must prove; a machine that was busy looks the same, so twice that many quick runs halve it
    again. Forgotten, oldest first, beyond 256 entries: a parameter that always changes
    proves nothing.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], tuple[int, int]] = OrderedDict()

    def is_quick(self, work: Work) -> bool:
        """Say whether a run may take place in the loop itself: a proven kernel on small arrays, without a limit."""
        kernel = work.kernel
        if kernel is None or work.is_host or work.limit_s is not None:
            return False
        runs, needed = self._known.get(_key(work, kernel.name), (0, PROVEN_RUNS))
        return runs >= needed and _payload_bytes(work) <= QUICK_BYTES

    def observe(self, work: Work, seconds: float, *, in_loop: bool) -> None:
        """Note how long a run took."""
        kernel = work.kernel
        if kernel is None or work.is_host:
            return
        key = _key(work, kernel.name)
        runs, needed = self._known.get(key, (0, PROVEN_RUNS))
        if seconds > QUICK_S:
            self._known[key] = (0, needed * 2 if in_loop else needed)
        elif runs + 1 >= 2 * needed and needed > PROVEN_RUNS:
            self._known[key] = (needed // 2, needed // 2)
        else:
            self._known[key] = (runs + 1, needed)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)


def _key(work: Work, name: str) -> tuple[str, str]:
    return name, repr(work.params) if work.params else ""


def _payload_bytes(work: Work) -> int:
    size = sum(array.nbytes for array in work.inputs)
    for output in work.outputs:
        part = output.dtype.itemsize
        for length in output.shape:
            part *= length
        size += part
    return size
