"""Kernels of the tests that run in processes: these must be importable by name."""

from __future__ import annotations

import os
import signal
import time

import numpy as np

from towline.errors import RetryableKernelError
from towline.offload import Array, KernelRegistry, cancelled, kernel

REGISTRY = KernelRegistry()


@kernel("t.add", registry=REGISTRY)
def add(left: Array, right: Array, out: Array) -> None:
    np.add(left, right, out=out)


@kernel("t.scale", registry=REGISTRY, executor="thread", min_offload_bytes=0)
def scale(source: Array, out: Array, *, by: float) -> None:
    np.multiply(source, by, out=out)


@kernel("t.increment", registry=REGISTRY, executor="thread", min_offload_bytes=0)
def increment(old: Array, new: Array) -> None:
    new += 1


@kernel("t.where", registry=REGISTRY, min_offload_bytes=0)
def where(out: Array) -> None:
    out[0] = os.getpid()


@kernel("t.die", registry=REGISTRY, min_offload_bytes=0)
def die(out: Array) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@kernel("t.forever", registry=REGISTRY, time_limit_s=0.3, min_offload_bytes=0)
def forever(out: Array) -> None:
    while True:
        time.sleep(0.01)


@kernel("t.polite", registry=REGISTRY, executor="thread", min_offload_bytes=0)
def polite(out: Array) -> None:
    while not cancelled():
        time.sleep(0.001)


@kernel("t.fail", registry=REGISTRY, min_offload_bytes=0)
def fail(out: Array) -> None:
    try:
        {}["missing"]
    except KeyError as error:
        raise ValueError("the kernel cannot go on") from error


@kernel("t.again", registry=REGISTRY, executor="thread", min_offload_bytes=0)
def again(out: Array) -> None:
    raise RetryableKernelError("not here")


@kernel("t.total", registry=REGISTRY, executor="thread", min_offload_bytes=0)
def total(source: Array, out: Array) -> None:
    out[0] = source.sum()


@kernel("t.spread", registry=REGISTRY, executor="thread", overwrites=True, min_offload_bytes=0)
def spread(seed: Array, out: Array) -> None:
    out[...] = seed[0]
