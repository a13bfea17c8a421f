"""Mistakes with kernels and buffers. The type checkers must refuse each line marked as refused, and no other."""

from __future__ import annotations

from towline import Context
from towline.offload import Array, Buffer, Graph, Runtime, kernel
from usage_offload import vec_add


async def body(ctx: Context) -> int:
    return 1


@kernel("bad.result")  # refused: a kernel returns nothing
def bad_result(a: Array) -> Array:
    return a


kernel("k", executor="fork")  # refused: not one of the values
kernel("k", determinism="maybe")  # refused: not one of the values


async def offload(graph: Graph, buffer: Buffer) -> None:
    graph.add(body, [buffer], [buffer])  # refused: no kernel
    graph.add(None, [buffer])  # refused: None needs a host function
    graph.add(vec_add, buffer, [buffer])  # refused: a list of arrays
    graph.add(vec_add, [buffer], [buffer], {"n": object()})  # refused: no parameter type
    graph.add(vec_add, [buffer], place="there")  # refused: not one of the values
    buffer.version = 3  # refused: read only
    graph.execute().summary()  # refused: await it
    with Runtime():  # refused: async with
        pass
