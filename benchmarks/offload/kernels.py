"""Kernels of the benchmark; workers load this file."""

from __future__ import annotations

import time

import numpy as np

from towline.offload import Array, kernel


@kernel("bench.add", executor="thread", overwrites=True, min_offload_bytes=0)
def add(left: Array, right: Array, out: Array) -> None:
    np.add(left, right, out=out)


@kernel("bench.empty", executor="thread", min_offload_bytes=0)
def empty(source: Array, out: Array) -> None:
    return


@kernel("bench.touch", overwrites=True, executor="thread", min_offload_bytes=0)
def touch(source: Array, out: Array) -> None:
    out[0] = source[0]


@kernel("bench.sum", executor="thread", min_offload_bytes=0)
def total(source: Array, out: Array) -> None:
    out[0] = source.sum()


@kernel("bench.sqrt", executor="thread", overwrites=True, min_offload_bytes=0)
def elementwise(source: Array, out: Array) -> None:
    np.sqrt(source, out=out)


@kernel("bench.matmul", executor="thread", overwrites=True, min_offload_bytes=0)
def product(left: Array, right: Array, out: Array) -> None:
    np.matmul(left, right, out=out)


@kernel("bench.wait", executor="thread", min_offload_bytes=0)
def wait(source: Array, out: Array) -> None:
    time.sleep(0.5)
