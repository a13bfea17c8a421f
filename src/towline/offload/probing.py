"""Golden vectors at the door: does this worker compute what the master computes? (OFF-420, OFF-422). Pure."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np

from towline.offload.arrays import Array, same_bytes
from towline.offload.kernels import Tolerant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from towline.offload.messages import Result
    from towline.offload.options import OffloadOptions
    from towline.offload.registry import KernelRegistry
    from towline.offload.sessions import Session

ECHO = ""
"""Name of the built-in kernel, number 0, that returns its input."""
ECHO_BYTES = 256 * 1024
PROBE_LIMIT_BYTES = 1 << 20

Plan = tuple[str, int, list[Array], list[tuple[tuple[int, ...], str]], dict[str, Any]]


class Prober:
    """Knows what to ask a joining worker, and what the answers must be."""

    def __init__(self, registry: KernelRegistry, options: OffloadOptions, random: Random) -> None:
        self._registry, self._options = registry, options
        self.seed = random.getrandbits(64)
        self._echo = np.frombuffer(Random(self.seed).randbytes(ECHO_BYTES), np.uint8)
        self._known: dict[str, tuple[tuple[list[Array], dict[str, Any]], list[Array]]] = {}

    def ready(self, kernel: str, inputs: tuple[list[Array], dict[str, Any]] | None, expected: list[Array]) -> None:
        """Take the master's own run of a probe."""
        if inputs is not None:
            self._known[kernel] = (inputs, expected)

    def plan(self, session: Session) -> Iterator[Plan]:
        """Yield what to send a worker: the echo first, so that its bandwidth is known, then each kernel with a probe."""
        yield ECHO, 0, [self._echo], [((ECHO_BYTES,), "|u1")], {}
        for name, kid in session.kernels.items():
            known = self._known.get(name)
            if known is not None and self._registry.get(name).determinism != "unchecked":
                (reads, params), expected = known
                yield name, kid, reads, [(array.shape, array.dtype.str) for array in expected], params

    def fresh_outputs(self, name: str) -> list[Array]:
        """Make the arrays that the answer to a probe lands in."""
        if name == ECHO:
            return [np.empty(ECHO_BYTES, np.uint8)]
        return [np.empty_like(array) for array in self._known[name][1]]

    def compare(self, name: str, result: Result, arrays: list[Array]) -> str | None:
        """Say how an answer differs from the master's own, or None."""
        if result.status != "ok":
            return f"its probe failed there: {result.error.type_name if result.error is not None else result.status}"
        expected = self._known[name][1]
        if len(arrays) != len(expected):
            return "its probe brought other outputs"
        determinism = self._registry.get(name).determinism
        for index, (mine, theirs) in enumerate(zip(expected, arrays, strict=True)):
            if isinstance(determinism, Tolerant):
                good = bool(np.allclose(theirs, mine, rtol=determinism.rtol, atol=determinism.atol, equal_nan=True))
            else:
                good = same_bytes(mine, theirs)
            if not good:
                return f"its probe gave another output {index}"
        return None

    def unverified(self, name: str, session: Session) -> str | None:
        """Say why the bytes of a kernel are unverified on a worker, or None (OFF-420)."""
        if name in session.refused_kernels or session.same_numeric or name in self._known:
            return None
        if self._registry.get(name).determinism == "unchecked":
            return None
        return f"{name!r} has no probe, and {session.worker} has another numeric fingerprint"


def run_probe(
    registry: KernelRegistry, name: str, seed: int
) -> tuple[tuple[list[Array], dict[str, Any]], list[Array]] | None:
    """Run a kernel's probe in this process; None without a probe. May raise what the kernel raises."""
    function = registry.function(name)
    if function.probe is None:
        return None
    probe = function.probe(Random(seed))
    reads = [np.ascontiguousarray(array) for array in probe.reads]
    outputs: list[Array] = [np.zeros(shape, dtype) for shape, dtype in probe.writes]
    if sum(array.nbytes for array in (*reads, *outputs)) > PROBE_LIMIT_BYTES:
        raise ValueError(f"the probe of {name!r} has more than {PROBE_LIMIT_BYTES} bytes of arrays")
    if function.kernel.variadic:
        function.function(reads, outputs, **probe.params)
    else:
        function.function(*reads, *outputs, **probe.params)
    return (reads, dict(probe.params)), outputs


def fingerprint(numeric: dict[str, str]) -> dict[str, str]:
    """Keep what decides the bytes of a result: Python and platform may differ (section 4)."""
    return {key: value for key, value in numeric.items() if key not in ("python", "platform", "byteorder")}
