"""Each failure rule alone, under turned time: what is noticed, when, and what is done about it (section 7.6)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from simulation.faults import Fault, Plan
from simulation.world import World, mix

from towline.offload.calls import Call, GraphRun, Phase
from towline.offload.messages import (
    CallAck,
    CallMessage,
    Cancel,
    Gone,
    Heartbeat,
    HeartbeatAck,
    Hello,
    Pull,
    Result,
    ResultAck,
)
from towline.testing import clause


def world(*faults: Fault, workers: int = 1, **settings: Any) -> World:
    return World(Plan(seed=1, calls=0, buffers=0, workers=workers, faults=list(faults), **settings))


def ready(*faults: Fault, workers: int = 1, **settings: Any) -> World:
    made = world(*faults, workers=workers, **settings)
    made.clock.run_until(lambda: made.core.live == workers, 30.0)
    return made


def submit(w: World, count: int = 1, *, size: int = 200, place: str = "auto", **options: Any) -> GraphRun:
    """Independent calls, each over buffers of its own."""
    calls = []
    for index in range(count):
        source = w.table.register(np.full(size, index, np.uint64), name=None, owned=True, shared=False)
        out = w.table.zeros(size, np.uint64, name=None, shared=False)
        call = Call(index, mix, "sim.mix", (source,), (out,), {"salt": index}, None, None, 0, place, None)
        for name, value in options.items():
            setattr(call, name, value)
        calls.append(call)
    run = GraphRun("g", calls, keep_going=True, on_end=lambda _: None)
    w.engine.submit(run, [()] * count)
    return run


def finish(w: World, run: GraphRun, limit_s: float = 300.0) -> float:
    """Run to the end of the graph; returns the virtual seconds that took."""
    began = w.clock.time()
    w.clock.run_until(lambda: run.unfinished == 0, limit_s)
    if w.engine.failure is not None:
        raise w.engine.failure
    return w.clock.time() - began


def drop_once(w: World, kind: type, direction: str, times: int = 1) -> None:
    """Lose the next ``times`` messages of one type."""
    fate, left = w.nemesis.fate, [times]

    def lossy(link: int, towards: str, nth: int, frame: Any, now: float) -> Any:
        if left[0] and towards == direction and isinstance(frame.message, kind):
            left[0] -= 1
            return []
        return fate(link, towards, nth, frame, now)

    w.nemesis.fate = lossy  # type: ignore[method-assign]


def spy(w: World, direction: str) -> list[Any]:
    """Collect the messages that travel in one direction."""
    fate, seen = w.nemesis.fate, []

    def watching(link: int, towards: str, nth: int, frame: Any, now: float) -> Any:
        if towards == direction:
            seen.append(frame.message)
        return fate(link, towards, nth, frame, now)

    w.nemesis.fate = watching  # type: ignore[method-assign]
    return seen


@clause("OFF-601")
def test_a_lost_hello_costs_one_retry() -> None:
    """A lost registration must not leave a worker outside the cluster."""
    w = world()
    drop_once(w, Hello, "to master", 2)
    w.clock.run_until(lambda: w.core.live == 1, 4.0)


@clause("OFF-604")
def test_worker_death_falls_back_to_local() -> None:
    """The only worker dies with calls in flight: the graph ends here, with its bytes (seed)."""
    w = ready(Fault("slow", 0, 0.0, 999.0, 1.0, 50.0))
    run = submit(w, 3)
    assert w.core.in_flight == 3
    w.clock.run_for(0.5)
    w._kill(0, 9_999.0, 1, True)

    seconds = finish(w, run)

    assert seconds < 1.0
    assert all(call.ran_on is None for call in run.calls)


@clause("OFF-604")
def test_silence_is_death_after_the_liveness_timeout() -> None:
    """A machine that lost power says nothing: its calls go elsewhere in five seconds, not in thirty."""
    w = ready(Fault("slow", 0, 0.0, 999.0, 1.0, 50.0))
    run = submit(w)
    w.clock.run_for(0.2)
    w._kill(0, 9_999.0, 1, False)

    assert 4.0 < finish(w, run) < 6.5


@clause("OFF-603", "OFF-602")
def test_a_second_worker_of_one_name_waits_until_the_first_is_dead() -> None:
    """The living session is untouched; a restart under the same name is a new session and joins in time."""
    w = ready()
    number = w.core.sessions[next(iter(w.core.sessions))].number
    w._twin(0, 1)
    w.clock.run_for(3.0)
    assert [s.number for s in w.core.sessions.values()] == [number]

    w._kill(0, w.age + 0.1, 1, False)
    w.clock.run_for(15.0)
    sessions = [s for s in w.core.sessions.values() if s.worker == "w0"]
    assert len(sessions) == 1
    assert sessions[0].number != number


@pytest.mark.parametrize("lost", [CallMessage, Result, ResultAck])
@clause("OFF-605", "OFF-607", "OFF-611")
def test_a_lost_message_is_repaired_within_five_heartbeats(lost: type) -> None:
    """Without this, one lost frame hangs a call though everybody is alive (seed)."""
    w = ready()
    drop_once(w, lost, "to worker" if lost is not Result else "to master")
    run = submit(w)

    assert finish(w, run) < 6.0
    w.clock.run_for(4.0)
    assert not w.agents[0].core.held_jobs
    assert max(w.agents[0].core.executions.values()) == 1


@clause("OFF-606")
def test_heartbeats_list_only_what_is_not_acknowledged() -> None:
    """An acknowledged job in a heartbeat would keep a lost call alive for ever."""
    w = ready()
    seen = spy(w, "to master")
    finish(w, submit(w, 2))
    w.clock.run_for(3.0)
    beats = [m for m in seen if isinstance(m, Heartbeat)]

    assert beats
    assert beats[-1].jobs == []
    assert beats[-1].unacked == []


@clause("OFF-608")
def test_a_healthy_long_kernel_is_never_killed_by_a_deadline() -> None:
    """A kernel of 95 s on a worker that tells of it runs once, though the call deadline is 30 s."""
    w = ready(Fault("slow", 0, 0.0, 999.0, 1.0, 95.0))
    run = submit(w, place="remote")

    assert finish(w, run) > 90.0
    assert (run.calls[0].attempts, run.calls[0].ran_on) == (1, "w0")


@clause("OFF-622")
def test_a_hung_kernel_on_a_lively_worker_cannot_hang_a_graph() -> None:
    """With a result deadline the call goes to another worker, and after the last attempt runs here."""
    w = ready(Fault("slow", 0, 0.0, 9_999.0, 1.0, 5_000.0), Fault("slow", 1, 0.0, 9_999.0, 1.0, 5_000.0), workers=2)
    seen = spy(w, "to worker")
    run = submit(w, result_deadline_s=2.0)

    assert finish(w, run) < 10.0
    assert run.calls[0].attempts == 3
    assert set(run.calls[0].attempts_on) == {"w0", "w1"}
    assert sum(isinstance(m, Cancel) for m in seen) == 3


@clause("OFF-610")
def test_with_all_links_cut_for_ever_every_call_ends_here() -> None:
    """A cluster may make a run slower; it may not make it hang."""
    w = ready(Fault("cut_both", 0, 3.0, 99_999.0), Fault("cut_both", 1, 3.0, 99_999.0), workers=2)
    w.clock.run_for(max(0.0, 3.1 - w.age))
    run = submit(w, 6)

    assert finish(w, run) < 60.0


@pytest.mark.parametrize("cut", ["cut_up", "cut_down"])
@clause("OFF-617")
def test_a_one_way_cut_heals(cut: str) -> None:
    """Each side judges by what it receives: a link that is deaf on one side does not look alive for ever."""
    w = ready(Fault(cut, 0, 3.0, 9.0))
    w.clock.run_for(9.0 - w.age)
    w.clock.run_until(lambda: w.core.live == 1, 5.0 + 3.0 + 5.0)
    run = submit(w, place="remote")

    assert finish(w, run) < 2.0


@clause("OFF-614")
def test_a_lost_pull_is_asked_for_again() -> None:
    """A transfer without bytes is repeated from where it stands, and not from the start."""
    w = ready()
    drop_once(w, Pull, "to master")
    run = submit(w)

    assert 4.0 < finish(w, run) < 8.0
    assert run.calls[0].attempts == 1


@clause("OFF-613", "OFF-411")
def test_a_worker_is_never_given_more_than_it_takes() -> None:
    """Fifty calls for one worker of four jobs: they wait at the master, where they can still go elsewhere."""
    w = ready(Fault("slow", 0, 0.0, 999.0, 1.0, 1.0))
    run = submit(w, 50)
    most = 0
    while run.unfinished:
        w.clock._step(w.clock.time() + 100)
        most = max(most, w.agents[0].core.held_jobs)

    assert most <= 4
    assert w.scheduler.local_runs > 5


@clause("OFF-411")
def test_quick_calls_are_sent_ahead_of_their_turn() -> None:
    """Four calls of microseconds leave both ends waiting for each other; four of a second keep a worker busy."""
    session = ready().core.sessions[1]
    session.calls = dict.fromkeys(range(session.window))  # type: ignore[arg-type]  # their number alone counts here

    session.backlog_s = 0.001
    assert session.has_room
    session.backlog_s = 0.5
    assert not session.has_room
    session.calls = dict.fromkeys(range(session.max_jobs))  # type: ignore[arg-type]
    session.backlog_s = 0.001
    assert not session.has_room


@clause("OFF-608")
def test_a_call_of_a_quick_kernel_is_answered_by_its_result() -> None:
    """An acknowledgement that leaves with the result says nothing; when the kernel is slow after all, heartbeats tell."""
    w = ready(Fault("slow", 0, 20.0, 60.0, 1.0, 9.0))
    agent = w.agents[0]
    agent.core._latest_s["sim.mix"] = 0.0001
    sent: list[type] = []
    fate = w.nemesis.fate

    def noted(link: int, towards: str, nth: int, frame: Any, now: float) -> Any:
        sent.append(type(frame.message))
        return fate(link, towards, nth, frame, now)

    w.nemesis.fate = noted  # type: ignore[method-assign]
    finish(w, submit(w))
    assert (sent.count(CallAck), sent.count(Result)) == (0, 1)

    w.clock.run_for(25.0)
    agent.core._latest_s["sim.mix"] = 0.0001
    run = submit(w)
    w.clock.run_for(2.0)
    assert run.calls[0].phase is Phase.RUNNING
    finish(w, run)
    assert run.calls[0].attempts == 1


@clause("OFF-308", "OFF-609")
def test_a_remote_call_waits_for_a_worker_and_then_says_why_not() -> None:
    """Whoever insists on a worker gets one, or an error that explains, never a local run."""
    w = world(Fault("cut_both", 0, 0.0, 9_999.0))
    run = submit(w, place="remote")

    assert 55.0 < finish(w, run) < 70.0
    assert "no worker" in str(run.failed[0].error)

    busy = ready(Fault("slow", 0, 0.0, 999.0, 1.0, 2.0))
    calls = submit(busy, 20, place="remote")
    finish(busy, calls)
    assert all(call.ran_on == "w0" for call in calls.calls)


@clause("OFF-620")
def test_an_hour_of_silence_is_legal() -> None:
    """A long serial part of a pipeline must not cost the cluster, nor grow its memory."""
    w = ready()
    seen = spy(w, "to master")
    w.clock.run_for(3_600.0)
    kinds = {type(message) for message in seen}

    assert w.core.live == 1
    assert kinds == {Heartbeat}
    assert finish(w, submit(w, place="remote")) < 1.0


@clause("OFF-619")
def test_a_worker_without_a_master_ends() -> None:
    """A forgotten worker does not stay for ever; its exit code tells it apart from a normal end."""
    w = world(Fault("cut_both", 0, 0.0, 9_999.0))
    w.clock.run_for(70.0)

    assert w.agents[0].end is not None
    assert w.agents[0].end[0] == 4


@clause("OFF-621")
def test_the_masters_own_pause_is_no_ones_silence() -> None:
    """A laptop that slept, or a kernel that held the GIL, must not bury healthy workers."""
    w = ready(workers=2)
    w.core._last_tick = w.clock.time() - 20.0
    for session in w.core.sessions.values():
        session.last_bytes_at = w.clock.time() - 20.0
    w.core.tick(w.clock.time())

    assert w.core.live == 2


@clause("OFF-612")
def test_a_higher_fence_takes_over_a_running_job() -> None:
    """A re-dispatch to the same worker is answered by what runs already: no second run, no lost call."""
    w = ready(Fault("slow", 0, 0.0, 999.0, 1.0, 4.0))
    w.core.options = w.core.options.__class__(
        **{f: getattr(w.core.options, f) for f in w.core.options.__struct_fields__} | {"attempts": 9}
    )
    run = submit(w, result_deadline_s=None, place="remote")
    w.clock.run_for(1.0)
    session = next(iter(w.core.sessions.values()))
    dispatch = session.calls[run.calls[0].number]
    w.core._failed_attempt(session, dispatch, "test", w.clock.time())
    run.calls[0].failed_on.clear()

    finish(w, run)

    assert run.calls[0].attempts == 2
    assert w.runners[0].runs == 1


@clause("OFF-513")
def test_jobs_that_lack_the_same_version_share_one_transfer() -> None:
    """Eight tiles that need one operand pull it once."""
    w = ready()
    seen = spy(w, "to master")
    source = w.table.register(np.ones(250, np.uint64), name=None, owned=True, shared=False)
    calls = [
        Call(
            i,
            mix,
            "sim.mix",
            (source,),
            (w.table.zeros(250, np.uint64, name=None, shared=False),),
            {"salt": i},
            None,
            None,
            0,
            "remote",
            None,
        )
        for i in range(4)
    ]
    run = GraphRun("g", calls, keep_going=False, on_end=lambda _: None)
    w.engine.submit(run, [()] * 4)
    finish(w, run)

    assert sum(isinstance(message, Pull) for message in seen) == 1


@clause("OFF-408")
def test_heartbeats_never_lower_what_the_master_knows() -> None:
    """A heartbeat written before a call arrived must not make a full worker look empty."""
    w = ready(Fault("slow", 0, 0.0, 999.0, 1.0, 30.0))
    submit(w, 4)
    session = next(iter(w.core.sessions.values()))
    w.core._heartbeat(session, Heartbeat(session.number, 10_000, 0.0), w.clock.time())

    view = session.view()
    assert view.in_flight == 4
    assert view.running + view.queued == 4


@clause("OFF-506")
def test_another_version_is_gone_never_other_bytes() -> None:
    """Whoever asks for an old version learns the number of the current one."""
    w = ready()
    buffer = w.table.register(np.ones(10, np.uint64), name=None, owned=False, shared=False)
    buffer.bump()
    session = next(iter(w.core.sessions.values()))
    w.core._pull(session, Pull(1, buffer.id, 1, 0), w.clock.time())
    gone = [a.frame.message for a in w.core.take() if hasattr(a, "frame") and isinstance(a.frame.message, Gone)]

    assert [(m.buf, m.ver, m.current) for m in gone] == [(buffer.id, 1, 2)]


def test_times_that_cannot_be_are_ignored() -> None:
    """NaN and negative numbers from a worker change nothing but its life."""
    w = ready()
    session = next(iter(w.core.sessions.values()))
    w.core._heartbeat(
        session, Heartbeat(session.number, 9_999, float("nan"), [], [], -5, -7, float("nan")), w.clock.time()
    )

    view = session.view()
    assert (view.mem_free, view.cache_bytes) == (0, 0)
    assert view.load == view.load
    assert any(isinstance(getattr(a, "frame", None) and a.frame.message, HeartbeatAck) for a in w.core.take())
