"""What bounds memory, what decides order, and what a worker may not be given."""

from __future__ import annotations

import asyncio
import logging
import socket
import tracemalloc
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import pytest
from clusters import together
from hypothesis import given, settings
from hypothesis import strategies as st
from offload_kernels import polite, total
from simulation.faults import Fault
from test_failure_rules import finish, ready, submit
from test_policy import LOCAL, call, worker

from towline.errors import BufferBusyError, GraphFailedError, InvariantViolated
from towline.offload import CostAwarePolicy, LeastLoadedPolicy, PipelineOffload, Runtime, TcpTransport
from towline.offload.cache import CopyCache
from towline.offload.explain import REMEMBERED_CALLS, Explanations
from towline.offload.frames import Frame, Head, encode
from towline.offload.messages import Auth, BufferRef, Data, Hello, Result
from towline.offload.pieces import Piece
from towline.offload.regions import RegionPool, host_identity
from towline.testing import clause


@pytest.mark.anyio
@clause("OFF-210", "OFF-413")
async def test_a_buffer_in_use_cannot_be_changed() -> None:
    """A bump under a running call would make its inputs two versions at once: the call is named instead."""
    async with together("in-process") as t:
        buffer = t.buffer(np.zeros(9_000))
        graph = t.runtime.graph()
        graph.add(polite, [], [buffer], name="slow one")
        running = asyncio.ensure_future(graph.execute())
        await asyncio.sleep(0)
        for change in (buffer.bump, buffer.release, buffer.split, lambda: buffer.edit().__enter__()):
            with pytest.raises(BufferBusyError, match="slow one"):
                change()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert buffer.bump() > 1


@clause("OFF-404")
def test_ready_calls_go_by_priority_then_longest_path_then_number() -> None:
    """What others wait for goes first; equals go in the order in which they were declared."""
    from simulation.world import mix

    from towline.offload.buffer_table import BufferTable
    from towline.offload.calls import Call, GraphRun
    from towline.offload.scheduler import Scheduler

    table = BufferTable(max_buffer_bytes=1 << 20)
    scheduler = Scheduler(table, local_slots=1)
    chained = table.zeros(1, np.uint64, name=None, shared=False)

    def made(index: int, priority: int, reads: Any = (), writes: Any = ()) -> Call:
        return Call(index, mix, "sim.mix", tuple(reads), tuple(writes), {"salt": 0}, None, None, priority, "auto", None)

    calls = [made(0, 0), made(1, 0, [], [chained]), made(2, 0, [chained]), made(3, 5), made(4, 0)]
    scheduler.submit(GraphRun("g", calls, keep_going=False, on_end=lambda _: None), [()] * 5, 0.0)
    order = []
    for _ in calls:
        scheduler.advance(0.0)
        (started,) = scheduler.starts
        scheduler.starts = []
        order.append(started.index)
        scheduler.local_finished(started, started.fence, [np.zeros(1, np.uint64)] * len(started.writes), 0.0, 0.0)

    assert order == [3, 1, 0, 2, 4]


@clause("OFF-406")
def test_workers_that_cannot_take_a_call_are_left_out() -> None:
    """No memory, no room, not live, or failed at this very call: others go first, and the reason is kept."""
    w = ready(workers=2)
    first, second = sorted(w.core.sessions.values(), key=lambda s: s.worker)
    first.mem_free = 10
    run = submit(w, 2)
    assert {d.call.number for d in first.calls.values()} == set()
    assert len(second.calls) == 2
    finish(w, run)
    first.mem_free, second.state = 0, "suspect"
    run = submit(w)
    assert len(first.calls) == 1
    finish(w, run)


@clause("OFF-410")
@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**9), st.floats(0, 10), st.integers(0, 3))
def test_a_policy_gives_the_same_answer_for_the_same_arguments(size: int, backlog: float, count: int) -> None:
    """A decision can be explained, and a simulated run repeated, only if nothing else goes into it."""
    views = [worker(f"w{n}", backlog_s=backlog * n, rtt_s=0.01 / (n + 1)) for n in range(count)]
    for policy in (LeastLoadedPolicy(), CostAwarePolicy()):
        answers = {str(policy.pick_worker(call(payload_bytes=size), views, LOCAL, at, Random(at))) for at in (0, 5)}
        assert len(answers) == 1


@clause("OFF-509")
def test_outputs_of_another_shape_fail_the_call_and_are_not_retried() -> None:
    """A worker with a wrong kernel would bring wrong shapes every time; nothing of them is committed."""
    w = ready(Fault("slow", 0, 0.0, 999.0, 1.0, 5.0))
    run = submit(w, place="remote")
    one = run.calls[0]
    before = one.writes[0].version
    buffer = one.writes[0]
    session = next(iter(w.core.sessions.values()))
    lie = Result(one.number, one.fence, "ok", [BufferRef(buffer.id, 2, "<f4", [3], 12)])
    w.core._result(session, lie, Head(lie, 0, 0, 0), False, w.clock.time())

    assert one.phase.name == "FAILED"
    assert "bad_output" in str(one.error)
    assert (buffer.version, one.attempts) == (before, 1)


@clause("OFF-511")
def test_one_version_has_one_content_for_ever() -> None:
    """In full verification a version with two contents stops the run with the clause that broke."""
    from towline.offload import OffloadOptions

    runtime = Runtime(options=OffloadOptions(verify="full"))
    buffer = runtime.buffer(np.zeros(4))
    buffer._data[0] = 1
    with pytest.raises(InvariantViolated, match="OFF-511"):
        runtime._table._record(buffer, "bump")


@pytest.mark.anyio
@clause("OFF-512", "OFF-908")
async def test_the_version_log_says_who_made_what() -> None:
    """Buffers live in memory and end with the runtime; the log is what a module can record."""
    from offload_kernels import scale

    async with together("in-process") as t:
        out = t.buffer(np.zeros(9_000))
        graph = t.runtime.graph()
        graph.add(scale, [t.buffer(np.ones(9_000))], [out], {"by": 2.0})
        result = await graph.execute()
        entry = t.cluster.version_log()[-1]

    assert (entry.buffer_id, entry.version, entry.made_by, entry.worker) == (out.id, 2, result.calls[0].number, "w0")
    assert entry.digest is not None
    again = PipelineOffload()
    assert again.buffer(out._data).version == 1


class _Receiver:
    def __init__(self, nbytes: int) -> None:
        self.nbytes, self.array, self.got = nbytes, np.empty(0, np.uint8), 0
        self.done: asyncio.Event = asyncio.Event()

    def body_for(self, head: Head) -> Sequence[memoryview] | None:
        if not self.array.size:
            self.array = np.empty(self.nbytes, np.uint8)
        data: Any = head.message
        return [memoryview(self.array)[data.offset : data.offset + head.body_bytes]]

    def on_frame(self, head: Head, landed: bool) -> None:
        self.got += head.body_bytes
        if self.got == self.nbytes:
            self.done.set()

    def on_bytes(self, count: int) -> None:
        return

    def on_flushed(self, frame: Frame) -> None:
        return

    def on_broken(self, error: Exception) -> None:
        raise error

    def on_down(self, reason: str) -> None:
        self.done.set()


@pytest.mark.anyio
@clause("OFF-703", "OFF-704", "OFF-971")
async def test_a_transfer_costs_its_own_size_and_a_little() -> None:
    """Receiving 32 MiB takes 32 MiB and scratch, sending them takes nothing; every byte arrives though writes are partial."""
    nbytes = 32 << 20
    source = np.random.default_rng(1).integers(0, 256, nbytes, np.uint8)
    receiver, sender, links = _Receiver(nbytes), _Receiver(1), []
    listener = TcpTransport.listen("127.0.0.1:0")
    await listener.start(lambda link: (link.bind(receiver), links.append(link)))
    dialler = TcpTransport.connect(listener.endpoint)
    await dialler.start(lambda link: (link.bind(sender), links.append(link)))
    mine = next(link for link in links if link._owner is sender)
    assert mine._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    view = memoryview(source)
    for at in range(0, nbytes, 4 << 20):
        mine.send(Frame(Data(1, at, nbytes), (view[at : at + (4 << 20)],)))
    await asyncio.wait_for(receiver.done.wait(), 30)
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    await dialler.close()
    await listener.close()

    assert receiver.array.tobytes() == source.tobytes()
    assert peak <= nbytes + (1 << 20)


@pytest.mark.anyio
@clause("OFF-706")
async def test_a_stream_that_breaks_in_mid_body_leaves_no_trace() -> None:
    """Half a frame is no frame: the link is gone, the session with it, and the cluster goes on."""
    async with together("tcp") as t:
        host, _, port = t.cluster.endpoint.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        await reader.readexactly(32)
        frames = [
            Frame(Auth("half", 5, b"n")),
            Frame(Hello(None, "half", 5, [])),
            Frame(Data(1, 0, 99_999), (memoryview(bytes(99_999)),)),
        ]
        data = b"".join(b"".join(encode(frame, seq)) for seq, frame in enumerate(frames))
        writer.write(data[:-50_000])
        await writer.drain()
        left: asyncio.Event = asyncio.Event()
        t.cluster.on_event(lambda event: left.set() if event.kind == "worker_dead" else None)
        writer.close()
        await asyncio.wait_for(left.wait(), 10)
        assert [view.worker for view in t.cluster.workers()] == ["w0"]


@clause("OFF-707")
def test_shared_memory_is_used_only_where_both_ends_see_it() -> None:
    """Containers on one host may have no common /dev/shm: a trial attach decides, and the reason is kept."""
    w = ready()
    pool = RegionPool()
    try:
        w.core._regions, w.core._host_id = pool, host_identity()
        name = pool.trial()

        def told(**facts: Any) -> str:
            fields: dict[str, Any] = {"host_id": host_identity(), "shm": True, "shm_trial": name} | facts
            return w.core._shared_with(Hello(None, "w", 1, [], **fields))

        assert told() == "on"
        assert told(shm=False) == "off there"
        assert told(host_id="elsewhere") == "another host or user"
        assert told(shm_trial=name[:-1] + "9999") == "no common shared memory"
        assert told(shm_trial="../etc/passwd") == "no common shared memory"
    finally:
        pool.close()


@clause("OFF-972")
@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["put", "pin", "unpin", "drop"]), st.integers(0, 6), st.integers(1, 60)), max_size=60
    )
)
def test_a_cache_stays_within_its_limit_but_for_what_is_pinned(steps: list[tuple[str, int, int]]) -> None:
    """Copies in use are never dropped, others go oldest first, and the sums are right after every step."""
    cache = CopyCache(100)
    pins: dict[int, int] = {}
    for action, number, size in steps:
        key = (b"run", number, 1)
        if action == "put":
            cache.put(key, Piece(memoryview(bytearray(size))))
        elif action == "pin" and cache.get(key) is not None:
            cache.pin(key)
            pins[number] = pins.get(number, 0) + 1
        elif action == "unpin" and pins.get(number):
            cache.unpin(key)
            pins[number] -= 1
        elif action == "drop":
            cache.drop(key)
        held = {k[1]: p.nbytes for k, p in cache._copies.items()}
        assert all(n in held for n, count in pins.items() if count)
        assert cache.used_bytes == sum(held.values())
        assert cache.pinned_bytes == sum(held[n] for n, count in pins.items() if count)
        assert (
            cache.used_bytes <= 100
            or cache.used_bytes == cache.pinned_bytes
            or len(held) == len([n for n in pins if pins[n]])
        )


@clause("OFF-972")
def test_a_full_result_store_starts_no_job() -> None:
    """Results that nobody fetches must not fill the worker's memory."""
    w = ready()
    agent = w.agents[0].core
    agent.options = type(agent.options)(slots=2, result_entries=1, shm=False)
    w.nemesis.fate = lambda link, towards, nth, frame, now: [] if type(frame.message).__name__ == "ResultAck" else [0.0]  # type: ignore[method-assign]
    submit(w, 3, place="remote")
    w.clock.run_for(1.5)

    assert sum(job.stage.name == "UNACKED" for bond in agent.bonds.values() for job in bond.jobs.values()) <= 2
    assert len(agent.executions) <= 2


@pytest.mark.anyio
@clause("OFF-972")
async def test_a_worker_keeps_no_large_copies_that_nobody_can_ask_for() -> None:
    """Fresh inputs for each run would fill its cache with versions that have a successor."""
    async with together("tcp", workers=1) as t:
        source, out = t.buffer(np.ones(1 << 18)), t.buffer(np.zeros(1))
        graph = t.runtime.graph()
        graph.add(total, [source], [out], place="remote")
        for _ in range(4):
            source.bump()
            await graph.execute()
        shell = t.agents[0]._shell
        held = shell.core.cache.used_bytes if shell is not None else 0

    assert 2 << 20 <= held < 4 << 20


@clause("OFF-973")
def test_what_is_remembered_is_bounded() -> None:
    """A run of a million calls remembers the last few thousand."""

    class Numbered:
        number = 0

    kept = Explanations()
    for number in range(REMEMBERED_CALLS + 500):
        one: Any = Numbered()
        one.number = number
        kept.frame(one, 0.0, "RESULT", "ok")

    assert len(kept._stories) == REMEMBERED_CALLS
    assert 0 not in kept._stories


@clause("OFF-112")
def test_a_kernel_that_keeps_the_gil_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    """It makes the agent deaf, and masters begin to suspect it: the author learns which kernel it was."""
    w = ready(Fault("slow", 0, 0.0, 999.0, 1.0, 30.0))
    submit(w, 2, place="remote")
    w.clock.run_for(0.5)
    shell = w.agents[0].shell
    with caplog.at_level(logging.WARNING, "towline.offload"):
        shell._tell_of_pause(3.5)
        shell._tell_of_pause(3.5)
        shell._tell_of_pause(0.5)

    assert [record.message for record in caplog.records] == [
        "kernel sim.mix runs in a thread and kept this agent from answering for 3.5 s: declare executor='process'"
    ]


def test_a_failed_graph_names_at_most_ten_calls() -> None:
    """A thousand failures still fit on a screen."""
    text = str(GraphFailedError("g", tuple(f"c{n}" for n in range(1000))))
    assert "c9" in text
    assert "c10" not in text
