"""Where each task of a run stands, and what the end of one means for the tasks behind it (PLAN-42..62)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from towline.execution.causes import Cause, kept_cause, own_cause
from towline.execution.gates import BlockedGates
from towline.execution.joins import Joins
from towline.execution.links import Links, dependencies
from towline.execution.scheduler_states import EXPANDED, EXPANDING, FINAL, OUTSIDE, READY, UNEXPANDED, WAITING
from towline.execution.scheduling import Expand, Settle
from towline.planning.edges import satisfied
from towline.planning.records import FINAL_STATES

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    from towline.execution.scheduling import Decision
    from towline.planning.records import PlannedTask, TaskState


class Standing:
    """The state of every task and the consequences of each end.

    Everything is indexed by place in the plan. ``finish`` walks with a list of its own, never by calls
    of itself, so that a chain of 20,000 skips like any other (SCHED-24).

    ``ready`` collects the tasks that became ready; whoever calls empties it. ``open`` counts tasks of
    the run that are not final; ``expanding`` joins whose ``Expand`` has no answer yet.
    """

    def __init__(self, rows: Iterable[PlannedTask], selection: Container[int] | None) -> None:
        self.rows: list[PlannedTask] = []
        self.ids: list[str] = []
        self.places: dict[str, int] = {}
        self.states = bytearray()
        self.missing: list[int] = []
        self.links = Links()
        self.joins = Joins()
        self.gates = BlockedGates(self.states, self.rows, self.links, self.joins.parents)
        self.ready: list[int] = []
        self.closed: list[int] = []
        """Tasks that are final, blocked or held since it was last emptied; kept only if ``counts_closed``."""
        self.counts_closed = False
        self.open = 0
        self.expanding = 0
        self.has_failure = False
        self.cancel_codes: dict[int, str] = {}
        self._ended: dict[int, TaskState] = {}
        self._causes: dict[int, Cause] = {}
        self._tolerated: set[int] = set()
        self._sources: dict[int, list[int]] = {}
        self._doomed: dict[int, int] = {}
        self._has_joins = False
        self._plain = True
        self.add(rows, selection)

    # -------------------------------------------------------------- building

    def add(self, rows: Iterable[PlannedTask], selection: Container[int] | None = None) -> range:
        """Append planned tasks and link them; returns their places."""
        first = len(self.rows)
        self.rows.extend(rows)
        self.ids.extend([row.id for row in self.rows[first:]])
        added = range(first, len(self.rows))
        self.places.update(zip(self.ids[first:], added, strict=True))
        self.states.extend(bytes(len(added)))
        self.missing.extend([0] * len(added))
        self.links.value.extend([None] * len(added))
        states = self.states
        linked: list[int] = []
        for place in added:
            row = self.rows[place]
            if row.state in FINAL_STATES:
                self._recall(place, row)
                if row.parent is None:
                    continue
            elif selection is None or place in selection:
                self.open += 1
                states[place] = WAITING if not row.join else UNEXPANDED
                self._has_joins = self._has_joins or row.join
            linked.append(place)
        for place in linked:
            row = self.rows[place]
            if row.parent is not None:
                self.joins.adopt(self.places[row.parent], place)
            if states[place] not in (OUTSIDE, FINAL) and (row.depends_on or row.gates):
                self._connect(place, row)
        self._plain = not (self.links.optional or self.links.outcome or self.links.always or self._has_joins)
        return added

    def _recall(self, place: int, row: PlannedTask) -> None:
        """Take over a final row: it satisfies and blocks as one of this run would (PLAN-46)."""
        self.states[place] = FINAL
        self._ended[place] = row.state
        if row.ignored:
            self._tolerated.add(place)
        if row.state in ("failed", "timed_out") and not row.ignored:
            # A join that failed by its children adds nothing to what they say.
            self.has_failure = self.has_failure or not row.join or row.reason == "expansion_failed"
        if row.state != "succeeded":
            self._causes[place] = kept_cause(row)

    def _connect(self, place: int, row: PlannedTask) -> None:
        states, places, missing, connect = self.states, self.places, self.missing, self.links.connect
        is_usual = not (row.always_run or row.join)
        for name, use in dependencies(row):
            task = places[name]
            if is_usual and states[task] not in (FINAL, OUTSIDE):
                missing[place] += 1
                connect(task, place, use)
                continue
            is_source = row.join and name == row.source
            tolerant = row.always_run and not is_source
            if states[task] == FINAL:
                accepted = tolerant or satisfied(use, self._ended[task], ignored=task in self._tolerated)
                if not accepted:
                    self._doomed.setdefault(place, task)
                continue
            if states[task] == OUTSIDE and (tolerant or use in ("optional", "outcome")):
                continue  # not in this run: as if absent
            self.missing[place] += 1
            if is_source:
                self._sources.setdefault(task, []).append(place)
            if tolerant:
                self.links.connect_always(task, place)
            else:
                self.links.connect(task, place, use)

    def begin(self, out: list[Decision]) -> None:
        """Settle what kept rows already decide, expand joins of kept sources, and make the roots ready."""
        for place, state in enumerate(self.states):
            if state == UNEXPANDED:
                self._begin_join(place, out)
        for place, state in enumerate(self.states):
            if state == WAITING:
                self._enter(place, out)
        for place, state in enumerate(self.states):
            if state == EXPANDED:
                self._check_join(place, out)

    def _begin_join(self, join: int, out: list[Decision]) -> None:
        row = self.rows[join]
        # Items that stand in the declaration need no source: they are there from the start (MOD-20).
        has_items = row.source is None or self._ended.get(self.places.get(row.source, -1)) == "succeeded"
        expanded = row.source_digest is not None or join in self.joins.children
        if not has_items:
            for child in self.joins.children.get(join, ()):
                self._hold_back(child)
        elif expanded:
            self._await_children(join)
            return
        if join in self._doomed:
            self._skip(join, self._doomed.pop(join), out)
            self._follow([join], out)
        elif has_items:
            self._expand(join, out)

    # -------------------------------------------------------------- ends

    def finish(self, task: int, state: TaskState, ignored: bool, out: list[Decision]) -> None:
        """Count a task as final; append the skips and joins that follow to ``out``, ready tasks to ``ready``."""
        self._mark(task, state, ignored)
        if state == "succeeded" and self._plain:
            # A success satisfies value and order alike, and nothing else hangs on it in a plan without joins.
            missing, states, ready, links = self.missing, self.states, self.ready, self.links
            for targets in (links.value[task], links.order.get(task)):
                for dependent in targets or ():
                    left = missing[dependent] - 1
                    missing[dependent] = left
                    if not left and states[dependent] == WAITING:
                        states[dependent] = READY
                        ready.append(dependent)
            return
        if state in ("failed", "timed_out") and not ignored:
            self.has_failure = True
        self._follow([task], out)

    def settle(self, task: int, decision: Settle, out: list[Decision]) -> None:
        """End a task by decision rather than by a body, and all that follows from it."""
        out.append(decision)
        self._mark(task, decision.state, False)
        self.has_failure = self.has_failure or decision.state == "failed"
        self._follow([task], out)

    def cancel_all(self, tasks: Sequence[int], code: str, out: list[Decision]) -> None:
        """End these tasks as cancelled at once: none of them is skipped because of another (PLAN-44)."""
        for task in tasks:
            self.cancel_codes[task] = code
            out.append(Settle(task=task, state="cancelled", code=code, blocked_by=None))
            self._mark(task, "cancelled", False)
        self._follow(list(tasks), out)

    def _mark(self, task: int, state: TaskState, ignored: bool) -> None:
        self.open -= 1
        if self.states[task] == EXPANDING:
            self.expanding -= 1
        if self.gates.blocked:
            self.gates.forget(task)
        self.states[task] = FINAL
        self._ended[task] = state
        if self.counts_closed:
            self.closed.append(task)
        if state != "succeeded":
            if ignored:
                self._tolerated.add(task)
            if task not in self._causes:
                self._causes[task] = own_cause(self.ids[task], state)

    def _follow(self, finished: list[int], out: list[Decision]) -> None:
        """Tell the dependents of each finished task; ``finished`` grows with those that end by it."""
        links = self.links
        for task in finished:
            state = self._ended[task]
            good = state == "succeeded"
            accepted = good or task in self._tolerated
            for dependent in links.value[task] or ():
                self._tell(dependent, task, good, finished, out)
            for dependent in links.order.get(task, ()):
                self._tell(dependent, task, accepted, finished, out)
            for dependent in links.optional.get(task, ()):
                self._tell(dependent, task, True, finished, out)
            for dependent in links.outcome.get(task, ()):
                self._tell(dependent, task, True, finished, out)
            if task not in self.gates.released:
                for dependent in links.always.get(task, ()):
                    self._tell(dependent, task, True, finished, out)
            if good:
                for join in self._sources.get(task, ()):
                    if self.states[join] == UNEXPANDED:
                        self._expand(join, out)
            if task in self.joins.parents:
                self._child_ended(self.joins.parents[task], task, finished, out)

    def _tell(self, dependent: int, task: int, accepted: bool, finished: list[int], out: list[Decision]) -> None:
        self.missing[dependent] -= 1
        state = self.states[dependent]
        if not accepted:
            if state in (WAITING, UNEXPANDED):
                self._skip(dependent, task, out)
                finished.append(dependent)
                return
            if state in (EXPANDING, EXPANDED) and dependent not in self._causes:
                self._causes[dependent] = self._causes[task]
        if not self.missing[dependent]:
            if state == WAITING:
                self._unlock(dependent)
            elif state == EXPANDED and self.joins.is_done(dependent):
                self._end_join(dependent, finished, out)

    def _unlock(self, task: int) -> None:
        self.states[task] = READY
        self.ready.append(task)

    def _skip(self, task: int, dependency: int, out: list[Decision]) -> None:
        cause = self._causes[task] = self._causes[dependency]
        out.append(cause.skip(task, self.ids[dependency]))
        self._mark(task, "skipped", False)

    def skip_behind(self, join: int, child: int, out: list[Decision]) -> None:
        """Skip what needs a join that can no longer succeed, before its other children have ended."""
        links = self.links
        if join not in self._causes:
            self._causes[join] = self._causes[child]
        targets = list(links.value[join] or ())
        if child not in self._tolerated:
            targets.extend(links.order.get(join, ()))
        finished: list[int] = []
        for dependent in targets:
            if self.states[dependent] in (WAITING, UNEXPANDED):
                self._skip(dependent, join, out)
                finished.append(dependent)
        self._follow(finished, out)

    # -------------------------------------------------------------- joins

    def grow(self, join: int, rows: Sequence[PlannedTask], out: list[Decision]) -> None:
        """Take in the children of a join; those of an earlier expansion that are not among them leave the run.

        The join itself may end here: an empty one does.
        """
        known = {row.id for row in rows}
        for child in list(self.joins.children.get(join, ())):
            if self.ids[child] in known:
                self._let_go(child)
            else:
                self._remove(join, child)
        added = self.add([row for row in rows if row.id not in self.places])
        self._await_children(join)
        for place in added:
            self._enter(place, out)
        self._check_join(join, out)

    def _enter(self, place: int, out: list[Decision]) -> None:
        """Decide what a task that is new, or was there from the start, may do now."""
        if self.states[place] != WAITING:
            return
        if place in self._doomed:
            self._skip(place, self._doomed.pop(place), out)
            self._follow([place], out)
        elif not self.missing[place]:
            self._unlock(place)
        elif self.gates.blocked and self.gates.hold_newcomer(place, self.places, out) and self.counts_closed:
            self.closed.append(place)

    def _hold_back(self, child: int) -> None:
        """Let a child of an earlier expansion wait: its source runs again and may not give its item any more."""
        if self.states[child] == WAITING:
            self.missing[child] += 1

    def _let_go(self, child: int) -> None:
        if self.states[child] == WAITING:
            self.missing[child] -= 1
            if not self.missing[child]:
                self._unlock(child)

    def _remove(self, join: int, child: int) -> None:
        if self.states[child] not in (FINAL, OUTSIDE):
            self.open -= 1
            self.gates.forget(child)
        self.states[child] = OUTSIDE
        self.joins.release(join, child)

    def _expand(self, join: int, out: list[Decision]) -> None:
        self.states[join] = EXPANDING
        self.expanding += 1
        out.append(Expand(join))

    def _await_children(self, join: int) -> None:
        if self.states[join] == EXPANDING:
            self.expanding -= 1
        self.states[join] = EXPANDED
        children = self.joins.children.get(join, ())
        ended = [child for child in children if self.states[child] == FINAL]
        self.joins.expect(join, len(children) - len(ended))
        for child in ended:
            self.joins.note(join, child, self._ended[child], child in self._tolerated)

    def _child_ended(self, join: int, child: int, finished: list[int], out: list[Decision]) -> None:
        if self.states[join] == EXPANDED:
            self.joins.note(join, child, self._ended[child], child in self._tolerated)
            self.joins.child_left(join)
            if self.joins.is_done(join) and not self.missing[join]:
                self._end_join(join, finished, out)

    def _check_join(self, join: int, out: list[Decision]) -> None:
        if self.states[join] == EXPANDED and self.joins.is_done(join) and not self.missing[join]:
            finished: list[int] = []
            self._end_join(join, finished, out)
            self._follow(finished, out)

    def _end_join(self, join: int, finished: list[int], out: list[Decision]) -> None:
        """Derive the end of a join from its children, else from its own dependencies; an empty one succeeds."""
        state, child, ignored, code = self.joins.verdict(join)
        if child is not None:
            cause = self._causes[join] = self._causes[child]
            code = code or (cause.code if state == "skipped" else self.cancel_codes.get(child, "stopped"))
            text = cause.text(self.ids[child])
            ended = Settle(task=join, state=state, code=code, text=text, blocked_by=cause.task, ignored=ignored)
        elif join in self._causes:
            ended = self._causes[join].skip(join, "")
        else:
            ended = Settle(task=join, state="succeeded", code="")
        out.append(ended)
        self._mark(join, ended.state, ignored)
        finished.append(join)

    # -------------------------------------------------------------- gates

    def block(self, gate: int, out: list[Decision]) -> None:
        """Take a gate as blocked: it and all that waits for it stay pending in this run (PLAN-51)."""
        held = self.gates.block(gate, out)
        if self.counts_closed:
            self.closed.extend(held)

    def release_behind_gates(self) -> bool:
        """At rest, let go on what takes a blocked gate as it is; says whether a task became ready by it."""
        for dependent in self.gates.let_go():
            self.missing[dependent] -= 1
            if not self.missing[dependent] and self.states[dependent] == WAITING:
                self._unlock(dependent)
        return bool(self.ready)
