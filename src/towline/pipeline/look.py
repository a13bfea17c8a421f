"""The door through which a view asks a session what tasks wait for, and how long the run will take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from towline.pipeline.module_rules import limits_of, rules_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from towline.execution.forecast import Eta
    from towline.execution.limits import ModuleRules
    from towline.pipeline.session import Session


class SessionLook:
    """Answers from the scheduler and the rows of a run (``execution.look.RunLook``)."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._limits = limits_of(session.request.options)
        self._rules: Mapping[str, ModuleRules] | None = None

    def waits_for(self, task: str) -> str:
        """Say what a task waits for; empty if it does not wait, or is not in the plan."""
        session = self._session
        place = session.opened.plan.index.get(task)
        return "" if place is None else session.scheduler.waits_for(place)

    def eta(self) -> Eta:
        """Simulate the open tasks, from how long the running ones have run."""
        from towline.execution.forecast import eta

        session = self._session
        if self._rules is None:  # plain consoles never ask
            self._rules = rules_of(session.built.specs)
        now = session.clock.now()
        elapsed_s = {
            run.position: max(0.0, now - run.started_at)
            for run in session.node.runs.values()
            if run.started_at is not None
        }
        return eta(
            session.opened.plan.document.tasks,
            self._rules,
            self._limits,
            session.opened.earlier.estimates,
            elapsed_s,
            selection=session.opened.selection,
        )
