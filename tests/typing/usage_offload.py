"""Kernels and offloading as a user would write them; the type checkers must accept every line."""

from __future__ import annotations

import numpy as np

from towline import Context, module
from towline.offload import Array, Runtime, TcpTransport, kernel

@kernel("vec.add")
def vec_add(left: Array, right: Array, out: Array) -> None:
    np.add(left, right, out=out)


@kernel("heat.step", version=2, determinism="bitwise", time_limit_s=30)
def heat_step(old: Array, new: Array, *, alpha: float) -> None:
    new[...] = old * alpha


@module
async def simulate(ctx: Context) -> float:
    field = ctx.offload.state(np.ones((64, 64)), name="field")
    graph = ctx.offload.graph("heat")
    for _ in range(10):
        graph.add(heat_step, [field.read], [field.write], {"alpha": 0.1})
        field.step()
    await graph.execute()
    return float(field.read.array.sum())


async def standalone() -> None:
    a, b, c = np.ones(1 << 20), np.ones(1 << 20), np.zeros(1 << 20)
    transport = TcpTransport.listen("127.0.0.1:5555")
    async with Runtime() as runtime, runtime.cluster(transport) as cluster:
        await cluster.wait_for_workers(1, timeout_s=30)
        left, right, out = runtime.buffer(a), runtime.buffer(b), runtime.buffer(c)
        graph = runtime.graph("demo")
        first = graph.add(vec_add, [left, right], [out])
        graph.add("vec.add", [out, right], [left], after=[first])
        result = await graph.execute()
        print(result.summary(), cluster.explain(result.calls[0].number).text())
