"""``towline offload worker``: the command that the guide and the error texts name."""

from __future__ import annotations

import asyncio
import importlib.util
import subprocess

import pytest

from cli.shell import Shell, ended

pytestmark = pytest.mark.skipif(importlib.util.find_spec("numpy") is None, reason="needs towline[offload]")

KERNELS = """
from towline.offload import kernel

@kernel("twice", executor="thread")
def twice(values, out):
    out[...] = values * 2
"""


def test_a_worker_serves_the_kernels_of_a_file(shell: Shell) -> None:
    """The line of the guide, typed as it stands there, gives a master its worker; BYE ends it with 0."""
    file = shell.write("vec.py", KERNELS)

    process, doubled = asyncio.run(_one_remote_call(shell, str(file)))

    result = ended(process)
    assert doubled == [2.0] * 4
    assert result.code == 0, result.err
    assert "event=started" in result.out
    assert "'twice'" in result.out


async def _one_remote_call(shell: Shell, file: str) -> tuple[subprocess.Popen[bytes], list[float]]:
    import numpy as np

    from towline.offload import KernelRegistry, OffloadOptions, Runtime, TcpTransport

    options = OffloadOptions(min_offload_bytes=0)
    registry = KernelRegistry.from_module(file)
    async with Runtime(kernels=registry, options=options) as runtime:
        async with runtime.cluster(TcpTransport.listen("127.0.0.1:0")) as cluster:
            process = shell.start("offload", "worker", "vec.py", "--master", cluster.endpoint)
            await cluster.wait_for_workers(1, timeout_s=50)
            out = np.zeros(4)
            graph = runtime.graph()
            graph.add("twice", [runtime.buffer(np.ones(4))], [runtime.buffer(out)], place="remote")
            await graph.execute()
        return process, out.tolist()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["vec.py"], "one of the arguments --master --listen is required"),
        (["vec.py", "--master", "nowhere"], "nowhere"),
        (["gone.py", "--master", "127.0.0.1:1"], "gone.py"),
        (["empty.py", "--master", "127.0.0.1:1"], "declares no kernel"),
    ],
)
def test_a_wrong_call_is_refused(shell: Shell, arguments: list[str], says: str) -> None:
    """Exit 2 and one text that names what is wrong, before anything is dialled."""
    shell.write("vec.py", KERNELS)
    shell.write("empty.py", "")

    result = shell.run("offload", "worker", *arguments, code=2)

    assert says in result.err
    assert "Traceback" not in result.err


def test_help_and_a_misspelt_command(shell: Shell) -> None:
    """The flags are the worker's own, so its help is what a user needs to see."""
    assert "--token-file" in shell.run("offload", "worker", "--help").out
    assert "worker" in shell.run("offload", "wroker", code=2).err


def test_doctor_names_the_extra_and_knows_its_settings(shell: Shell) -> None:
    """Someone whose kernels stay local looks there first; a setting of offload is no unknown variable."""
    result = shell.run("doctor", TOWLINE_OFFLOAD_ATTEMPTS="5")

    assert "(extra offload)" in result.out
    assert "not known" not in result.out
