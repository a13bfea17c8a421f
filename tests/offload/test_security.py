"""Only who knows the token joins, before anything is allocated for them (section 7.8)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import trustme
from clusters import QUICK, together
from offload_kernels import REGISTRY, scale

from towline.errors import ConfigurationError
from towline.offload import AgentOptions, OffloadAccess, OffloadOptions, Runtime, TcpTransport, WorkerAgent
from towline.offload.frames import Frame, encode
from towline.offload.messages import Auth, CallAck, Data, Heartbeat, Hello, Result
from towline.testing import clause

pytestmark = pytest.mark.anyio
TOKEN = "correct-horse-battery-staple"


@clause("OFF-802")
async def test_workers_with_the_token_join_and_others_do_not() -> None:
    """A wrong token ends the worker for good, with the reason; the right one works."""
    async with together("tcp", access=OffloadAccess(token=TOKEN)) as t:
        graph = t.runtime.graph()
        graph.add(scale, [t.buffer(np.ones(9_000))], [t.buffer(np.zeros(9_000))], {"by": 2.0})
        assert (await graph.execute()).offloaded == 1
        for wrong in (OffloadAccess(token="wrong-horse-battery-staple"), None):
            stranger = WorkerAgent(TcpTransport.connect(t.cluster.endpoint), REGISTRY, access=wrong, name="stranger")
            end = await stranger.serve()
            assert end.code == 2
            assert "bad_token" in end.reason
        assert [view.worker for view in t.cluster.workers()] == ["w0"]


@clause("OFF-802")
async def test_a_worker_does_not_serve_a_master_without_the_token() -> None:
    """The proof is mutual: an impostor on the master's port gets no worker."""
    async with together("tcp", workers=0, wait=False) as t:
        agent = WorkerAgent(
            TcpTransport.connect(t.cluster.endpoint), REGISTRY, access=OffloadAccess(token=TOKEN), name="careful"
        )
        end = await agent.serve()

    assert end.code == 2


@clause("OFF-801")
async def test_a_listener_beyond_loopback_needs_a_token() -> None:
    """Master and agent alike refuse to open a port to everyone."""
    async with Runtime(kernels=REGISTRY) as runtime:
        with pytest.raises(ConfigurationError, match="TOWLINE_TOKEN"):
            await runtime.cluster(TcpTransport.listen("0.0.0.0:0")).__aenter__()
    agent = WorkerAgent(TcpTransport.listen("0.0.0.0:0"), REGISTRY)
    with pytest.raises(ConfigurationError, match="--token-file"):
        await agent.start()
    await agent.stop()


async def _speak(endpoint: str, data: bytes, *, wait: bool = True) -> bytes:
    host, _, port = endpoint.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        await reader.readexactly(32)
        writer.write(data)
        await writer.drain()
        return await asyncio.wait_for(reader.read(-1), 10) if wait else b""
    except (ConnectionError, asyncio.IncompleteReadError):
        return b""
    finally:
        writer.close()


@clause("OFF-803", "OFF-806")
async def test_strangers_are_cut_off_before_anything_is_taken_from_them() -> None:
    """Noise, bodies and protocol messages before AUTH close the link; the cluster goes on."""
    hello = Hello(None, "x", 1, [])
    attempts = [
        Random(1).randbytes(200),
        b"".join(encode(Frame(hello), 0)),
        b"".join(encode(Frame(Heartbeat(1, 1, 0.0)), 0)),
        b"".join(encode(Frame(Data(1, 0, 9), (memoryview(b"123456789"),)), 0)),
        b"".join(encode(Frame(Auth("w", 1, b"n", 1, b"forged" * 6)), 0)),
        b"".join(encode(Frame(Auth("x" * 5_000, 1, b"n")), 0)),
    ]
    async with together("tcp", access=OffloadAccess(token=TOKEN)) as t:
        for data in attempts:
            await _speak(t.cluster.endpoint, data)
        assert t.cluster.stats().rejected_frames >= 4
        assert t.cluster.stats().alive_workers == 1


@clause("OFF-803")
async def test_a_silent_stranger_is_cut_off_in_time() -> None:
    """Sixty-four open sockets must not keep workers out for longer than the handshake takes."""
    async with together("tcp", handshake_timeout_s=0.2) as t:
        assert await _speak(t.cluster.endpoint, b"") is not None
        graph = t.runtime.graph()
        graph.add(scale, [t.buffer(np.ones(9_000))], [t.buffer(np.zeros(9_000))], {"by": 2.0})
        assert (await graph.execute()).offloaded == 1


@clause("OFF-806", "OFF-974")
async def test_frames_of_a_proven_peer_are_not_trusted_either() -> None:
    """A worker that lies about results, transfers and names is answered or cut off, never believed."""
    lies: list[Any] = [
        Frame(Result(999, 999, "ok", [])),
        Frame(CallAck(1, 2, "accepted")),
        Frame(Data(77, 0, 3), (memoryview(b"abc"),)),
        Frame(Hello(None, "w\x00", 5, [])),
    ]
    async with together("tcp") as t:
        for lie in lies:
            auth = Frame(Auth("liar", 5, b"n"))
            greeting = Frame(Hello(None, "liar", 5, []))
            data = b"".join(b"".join(encode(frame, seq)) for seq, frame in enumerate([auth, greeting, lie]))
            await _speak(t.cluster.endpoint, data, wait=False)
        graph = t.runtime.graph()
        out = np.zeros(9_000)
        graph.add(scale, [t.buffer(np.ones(9_000))], [t.buffer(out)], {"by": 2.0})
        await graph.execute()

    assert out[0] == 2


@clause("OFF-804")
async def test_links_can_be_encrypted(tmp_path: Path) -> None:
    """With TLS on both sides the same bytes come home; a worker without the CA does not get in."""
    authority = trustme.CA()
    leaf = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    leaf.private_key_pem.write_to_path(tmp_path / "key.pem")
    leaf.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    server = OffloadAccess(token=TOKEN, tls_cert=str(tmp_path / "cert.pem"), tls_key=str(tmp_path / "key.pem"))
    client = OffloadAccess(token=TOKEN, tls_ca=str(tmp_path / "ca.pem"))
    options = OffloadOptions(min_offload_bytes=0, shm=False, **QUICK)
    async with (
        Runtime(kernels=REGISTRY, options=options) as runtime,
        runtime.cluster(TcpTransport.listen("127.0.0.1:0"), access=server) as cluster,
    ):
        agent = WorkerAgent(
            TcpTransport.connect(cluster.endpoint), REGISTRY, access=client, name="w0", options=AgentOptions(shm=False)
        )
        await agent.start()
        await cluster.wait_for_workers(1, timeout_s=20)
        source, out = np.random.default_rng(1).random(400_000), np.zeros(400_000)
        graph = runtime.graph()
        graph.add(scale, [runtime.buffer(source)], [runtime.buffer(out)], {"by": 2.0})
        result = await graph.execute()
        await agent.stop()

    assert result.offloaded == 1
    assert out.tobytes() == (source * 2).tobytes()
