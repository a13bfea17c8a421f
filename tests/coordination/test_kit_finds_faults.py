"""The contract kit proves something: for each clause a coordinator broken in that one point fails its case."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from towline.coordination import checks, client
from towline.coordination import operations as ops
from towline.coordination.ledger import apply, events, leases, outcomes, queue, runs, sessions
from towline.coordination.ledger.state import LedgerState, SessionRow
from towline.coordination.memory import MemoryRun
from towline.coordination.records import NoWork, PublishReply
from towline.testing import run_virtual
from towline.testing.coordinator_contract import coordinator_cases
from towline.testing.coordinator_envs import MemoryEnv

if TYPE_CHECKING:
    from collections.abc import Callable

Patch = pytest.MonkeyPatch


HANDLERS: dict[Any, Any] = apply.__globals__["_HANDLERS"]
MUTANTS: dict[str, list[Callable[[Patch], None]]] = {}


def breaks(*clauses: str) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    """Note which clauses a mutant breaks."""

    def note(mutant: Callable[[Patch], None]) -> Callable[[Patch], None]:
        for clause in clauses:
            MUTANTS.setdefault(clause, []).append(mutant)
        return mutant

    return note


def around(patch: Patch, operation: Any, change: Callable[[Any, Any, Callable[[], Any]], Any]) -> None:
    """Wrap the handling of one operation: ``change(step, operation, go_on)``."""
    original = HANDLERS[operation]
    patch.setitem(HANDLERS, operation, lambda step, asked: change(step, asked, lambda: original(step, asked)))


def never_refused(patch: Patch, name: str) -> None:
    patch.setattr(sessions, name, lambda *_: None)


@breaks("COORD-C01", "COORD-C05")
def silence_goes_unnoticed(patch: Patch) -> None:
    patch.setattr(SessionRow, "is_live", lambda self, now_ms: not self.ended)
    around(
        patch,
        ops.ReadWorkers,
        lambda step, _, go: tuple(s.registration for s in step.state.sessions.values() if not s.final),
    )


@breaks("COORD-C02")
def reconnecting_forgets_the_status(patch: Patch) -> None:
    def forget(step: Any, asked: Any, go: Any) -> Any:
        reply = go()
        step.state.sessions[asked.registration.worker_id].status = None
        return reply

    around(patch, ops.Register, forget)


@breaks("COORD-C03")
def a_live_id_is_taken(patch: Patch) -> None:
    patch.setattr(sessions, "_replace", lambda step, current: None)


@breaks("COORD-C04")
def the_old_leases_stay(patch: Patch) -> None:
    patch.setattr(sessions, "lose_lease", lambda step, task_id: None)


@breaks("COORD-C06")
def goodbye_means_nothing(patch: Patch) -> None:
    patch.setattr(sessions, "_end_politely", lambda step, session: None)


@breaks("COORD-C07")
def the_workers_clock_counts(patch: Patch) -> None:
    def judge(step: Any, asked: Any, go: Any) -> Any:
        reply = go()
        if asked.registration.registered_at.startswith("1999"):
            step.state.sessions[asked.registration.worker_id].alive_until_ms = 0
        return reply

    around(patch, ops.Register, judge)


@breaks("COORD-C08")
def any_program_will_do(patch: Patch) -> None:
    patch.setattr(sessions, "_check_program", lambda step, registration: step.require_run())


@breaks("COORD-C09")
def an_unknown_run_is_welcome(patch: Patch) -> None:
    around(patch, ops.Register, lambda step, asked, go: go() if step.state.opening else runs.run_state(step.state, 0))


@breaks("COORD-C10")
def held_is_not_looked_at(patch: Patch) -> None:
    around(
        patch,
        ops.Register,
        lambda step, asked, go: (
            runs.run_state(step.state, step.now_ms) if asked.registration.worker_id in step.state.sessions else go()
        ),
    )


@breaks("COORD-C11")
def nobody_is_expelled(patch: Patch) -> None:
    around(patch, ops.Expel, lambda step, asked, go: asked.worker_id in step.state.sessions)


@breaks("COORD-C21", "COORD-C32")
def everybody_fits(patch: Patch) -> None:
    patch.setattr(queue, "fits", lambda clauses, capabilities: True)
    patch.setattr(sessions, "fits", lambda clauses, capabilities: True)


@breaks("COORD-C23", "COORD-C30")
def assignments_are_cut(patch: Patch) -> None:
    def cut(step: Any, asked: Any, go: Any) -> Any:
        bare = tuple(msgspec.structs.replace(one, key=None, requires=one.requires[:1]) for one in asked.assignments)
        return HANDLERS_BEFORE[ops.Enqueue](step, msgspec.structs.replace(asked, assignments=bare))

    around(patch, ops.Enqueue, cut)


@breaks("COORD-C31")
def the_order_is_that_of_arrival(patch: Patch) -> None:
    original = queue.best_task

    def oldest(step: Any, session: Any) -> Any:
        places = [p for n in session.fits for p in step.state.buckets[n].queue]
        return step.state.tasks[min(places, key=lambda p: p[2])[3]] if places else original(step, session)

    patch.setattr(leases, "best_task", oldest)


@breaks("COORD-C33")
def a_cancelled_claim_swallows_its_cancel(patch: Patch) -> None:
    original = client.LinkedCoordinator.claim

    async def swallow(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return await original(self, *args, **kwargs)
        except asyncio.CancelledError:
            return NoWork(0)

    patch.setattr(client.LinkedCoordinator, "claim", swallow)


@breaks("COORD-C34")
def a_claim_leaves_the_task_in_the_queue(patch: Patch) -> None:
    patch.setattr(leases, "take_out", lambda state, row: None)


@breaks("COORD-C35")
def tokens_are_not_remembered(patch: Patch) -> None:
    patch.setattr(leases, "_repeated", lambda step, operation: None)


@breaks("COORD-C36")
def a_task_may_be_queued_twice(patch: Patch) -> None:
    def again(step: Any, asked: Any, go: Any) -> Any:
        go()
        return tuple(True for _ in asked.assignments)

    around(patch, ops.Enqueue, again)


@breaks("COORD-C37")
def withdraw_takes_everything(patch: Patch) -> None:
    def all_of_them(step: Any, asked: Any, go: Any) -> Any:
        go()
        return frozenset(asked.task_ids)

    around(patch, ops.Withdraw, all_of_them)


@breaks("COORD-C38")
def a_failure_does_not_matter(patch: Patch) -> None:
    original = queue.best_task

    def ignoring(step: Any, session: Any) -> Any:
        before, step.state.signal = step.state.signal, type(step.state.signal)("running")
        try:
            return original(step, session)
        finally:
            step.state.signal = before

    patch.setattr(leases, "best_task", ignoring)


@breaks("COORD-C39")
def a_stop_is_no_end(patch: Patch) -> None:
    def never_closed(step: Any, asked: Any, go: Any) -> Any:
        return NoWork(0) if step.state.completed or step.state.signal.value == "stopped" else go()

    around(patch, ops.Claim, never_closed)


@breaks("COORD-C40", "COORD-C53", "COORD-C55")
def leases_outlive_their_outcome(patch: Patch) -> None:
    original = outcomes.settle

    def keep(step: Any, outcome: Any, *, why: Any = None) -> None:
        lease = step.state.leases.get(outcome.task_id)
        original(step, outcome, why=why)
        if lease is not None:
            step.state.leases[outcome.task_id] = lease

    patch.setattr(outcomes, "settle", keep)


@breaks("COORD-C41", "COORD-C44", "COORD-C45")
def nothing_expires(patch: Patch) -> None:
    around(patch, ops.RequeueExpired, lambda step, asked, go: ())


@breaks("COORD-C42")
def a_heartbeat_renews_everything(patch: Patch) -> None:
    def renew(step: Any, asked: Any, go: Any) -> Any:
        for lease in step.state.leases.values():
            lease.expires_ms = step.now_ms + 10**6
        return go()

    around(patch, ops.Heartbeat, renew)


@breaks("COORD-C43")
def losses_are_not_told(patch: Patch) -> None:
    around(patch, ops.Heartbeat, lambda step, asked, go: msgspec.structs.replace(go(), lost=()))


@breaks("COORD-C46")
def nobody_is_passed_over(patch: Patch) -> None:
    original = queue._head
    patch.setattr(
        queue, "_head", lambda step, bucket, worker, *, others_fit: original(step, bucket, worker, others_fit=False)
    )


@breaks("COORD-C47")
def a_take_over_gives_no_time(patch: Patch) -> None:
    def no_grace(step: Any, asked: Any, go: Any) -> Any:
        reply = go()
        step.state.requeue_after_ms = 0
        return reply

    around(patch, ops.OpenRun, no_grace)


@breaks("COORD-C48")
def epochs_start_anew(patch: Patch) -> None:
    patch.setattr(leases, "EPOCHS_PER_JUMP", 0)


@breaks("COORD-C49")
def a_release_waits_for_the_lease(patch: Patch) -> None:
    around(patch, ops.Release, lambda step, asked, go: True)


@breaks("COORD-C50", "COORD-C60", "COORD-C70", "COORD-C72")
def nobody_is_woken(patch: Patch) -> None:
    original = MemoryRun.apply

    def quietly(self: Any, operation: Any) -> Any:
        watches, self._watches = self._watches, {}
        try:
            return original(self, operation)
        finally:
            self._watches = watches

    patch.setattr(MemoryRun, "apply", quietly)


@breaks("COORD-C51")
def the_last_outcome_counts(patch: Patch) -> None:
    def overwrite(step: Any, asked: Any, go: Any) -> Any:
        step.state.outcomes.pop(asked.outcome.task_id, None)
        reply = go()
        return reply if reply.accepted else PublishReply(accepted=False)

    around(patch, ops.Publish, overwrite)


@breaks("COORD-C54")
def a_repeat_is_too_late(patch: Patch) -> None:
    def once(step: Any, asked: Any, go: Any) -> Any:
        if asked.outcome.task_id in step.state.outcomes:
            return PublishReply(accepted=False)
        return go()

    around(patch, ops.Publish, once)


@breaks("COORD-C52")
def zombies_are_believed(patch: Patch) -> None:
    patch.setattr(outcomes, "_may_publish", lambda step, outcome: True)


@breaks("COORD-C57")
def records_grow(patch: Patch) -> None:
    patch.setattr(checks, "within_limit", lambda outcome: outcome)


@breaks("COORD-C61")
def signals_fall(patch: Patch) -> None:
    def set_it(step: Any, asked: Any, go: Any) -> Any:
        step.require_master(asked.owner_epoch)
        step.state.signal = asked.signal
        return asked.signal

    around(patch, ops.SendSignal, set_it)


@breaks("COORD-C62")
def completion_stops_the_run(patch: Patch) -> None:
    def stop(step: Any, asked: Any, go: Any) -> Any:
        go()
        step.state.signal = type(step.state.signal)("stopped")

    around(patch, ops.Complete, stop)


@breaks("COORD-C63", "COORD-C85")
def a_lost_master_runs_on(patch: Patch) -> None:
    def alive(step: Any, asked: Any, go: Any) -> Any:
        reply = go()
        return msgspec.structs.replace(reply, state="running") if reply.state == "lost" else reply

    around(patch, ops.ReadRun, alive)


@breaks("COORD-C64")
def two_masters_may_live(patch: Patch) -> None:
    patch.setattr(runs, "_check_take_over", lambda step, current, opening: None)


@breaks("COORD-C65")
def old_masters_go_on(patch: Patch) -> None:
    patch.setattr("towline.coordination.ledger.state.Step.require_master", lambda self, owner_epoch: self.run)


@breaks("COORD-C71")
def events_are_stored_twice(patch: Patch) -> None:
    def forget(step: Any, asked: Any, go: Any) -> Any:
        step.state.events_stored.clear()
        return go()

    around(patch, ops.SendEvents, forget)


@breaks("COORD-C73")
def the_backlog_has_no_end(patch: Patch) -> None:
    def no_bound(step: Any, asked: Any, go: Any) -> Any:
        step.state.events_pending = 0
        return go()

    around(patch, ops.SendEvents, no_bound)


@breaks("COORD-C80")
def waits_ignore_their_cancel(patch: Patch) -> None:
    original = client.LinkedCoordinator._wait

    async def deaf(self: Any, *args: Any) -> Any:
        try:
            return await original(self, *args)
        except asyncio.CancelledError:
            await asyncio.sleep(100)
            raise

    patch.setattr(client.LinkedCoordinator, "_wait", deaf)


@breaks("COORD-C81")
def closing_does_nothing(patch: Patch) -> None:
    async def nothing(self: Any) -> None:
        return None

    patch.setattr(client.LinkedCoordinator, "aclose", nothing)


HANDLERS_BEFORE = dict(HANDLERS)


def _fails(clause: str) -> bool:
    for case in coordinator_cases():
        if clause in case.clauses:
            try:
                run_virtual(case.run(MemoryEnv(poll_s=2.0 if clause == "COORD-C85" else 1_000.0)))
            except (AssertionError, Exception):
                return True
    return False


@pytest.mark.parametrize(
    ("clause", "mutant"),
    [(clause, mutant) for clause, mutants in sorted(MUTANTS.items()) for mutant in mutants],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_broken_coordinator_fails_its_case(clause: str, mutant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    """A case that passes on a broken back end proves nothing to the author of the next one."""
    mutant(monkeypatch)
    found = _fails(clause)
    monkeypatch.undo()
    assert found


def test_every_clause_of_the_kit_has_a_mutant() -> None:
    """A case nobody has seen fail may not be able to."""
    clauses = {clause for case in coordinator_cases() for clause in case.clauses}
    assert clauses - set(MUTANTS) == set()


def test_the_ledger_is_whole_again() -> None:
    """Mutants are gone when their test is over."""
    assert HANDLERS == HANDLERS_BEFORE
    assert LedgerState().opening is None
    assert events.read_feed is HANDLERS[ops.ReadFeed]
