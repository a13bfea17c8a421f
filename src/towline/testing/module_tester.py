"""Run one task of a module through the real runner, with everything around it given (TEST-02, TEST-03)."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast, overload

import msgspec

from towline.errors.testing import UnseededInputError
from towline.execution.doors import NodeDoors
from towline.execution.options import Options
from towline.execution.run_request import RunRequest
from towline.identity import suggestion
from towline.modules.annotations import resolve_types
from towline.modules.outcomes import Reason, Skipped, Succeeded
from towline.modules.reference import spec_of
from towline.modules.selectors import Selector
from towline.modules.spec import ModuleRef
from towline.pipeline.program import Program
from towline.pipeline.running import run_session
from towline.pipeline.session import Session
from towline.testing.made_outcomes import succeeded
from towline.testing.script import Script, Scripted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

    from towline.events.records import Event
    from towline.masking import Secret
    from towline.modules.doors import Attempt
    from towline.modules.kinds import ManyModule, OneModule
    from towline.modules.outcomes import Outcome
    from towline.modules.spec import Edge, ModuleSpec

T = TypeVar("T")
V = TypeVar("V")


class ModuleTester(Scripted, Generic[T]):
    """Run one task of a module: timeouts, retries, conditions, hooks and cursors are the real ones.

    Results of dependencies, outcomes, artifacts, parameters, commands and secrets are those that the test gives; a
    needed one that is missing fails the test by name. Nothing is written outside a temporary folder. A body
    with ``isolation="process"`` runs in a thread here. ``events``: what the run told its observers.

    Args:
        module: The module. Of an expanded one also ``matrix``, the value of each axis, or ``item``.
    """

    @overload
    def __init__(self, module: OneModule[T], /) -> None: ...
    @overload
    def __init__(self, module: ManyModule[T], /, *, matrix: Mapping[str, object]) -> None: ...
    @overload
    def __init__(self, module: ManyModule[T], /, *, item: object) -> None: ...
    def __init__(self, module: Any, /, *, matrix: Mapping[str, object] | None = None, item: object = None) -> None:
        self._spec, self._matrix, self._item = resolve_types(spec_of(module)), matrix, item
        self._script = Script()
        self._given: dict[str, object] = {}
        """Dependency -> the outcome that it had, or a list of these."""
        self._files: dict[tuple[str, str], Path] = {}
        self.events: list[Event] = []

    # -------------------------------------------------------------- what the test gives

    @overload
    def with_result(self, module: OneModule[V], value: V, /) -> Self: ...
    @overload
    def with_result(self, module: ManyModule[V] | Selector[V], values: list[V], /) -> Self: ...
    def with_result(self, module: Any, value: Any, /) -> Self:
        """Give the result of a dependency; of an expanded one or a selector, the list of its results."""
        many = isinstance(module, Selector) or spec_of(module).is_expanded
        self._given[_name_of(module)] = [succeeded(one) for one in value] if many else succeeded(value)
        return self

    @overload
    def with_outcome(self, module: OneModule[V], outcome: Outcome[V], /) -> Self: ...
    @overload
    def with_outcome(self, module: ManyModule[V] | Selector[V], outcomes: list[Outcome[V]], /) -> Self: ...
    def with_outcome(self, module: Any, outcome: Any, /) -> Self:
        """Say how a dependency ended."""
        self._given[_name_of(module)] = outcome
        return self

    def with_artifact(self, module: OneModule[V] | ManyModule[V], name: str, path: str | PathLike[str], /) -> Self:
        """Give a file or folder for an artifact that the module consumes."""
        self._files[spec_of(cast("OneModule[V]", module)).name, name] = Path(path)
        return self

    # -------------------------------------------------------------- the run

    async def run(self) -> Outcome[T]:
        """Run it; a failure is returned, not raised.

        Raises:
            UnseededInputError: A needed dependency or artifact was not given, or one was given that is no dependency.
        """
        self._check_names()
        inputs = self._inputs()
        if isinstance(inputs, Skipped):
            return inputs
        folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="towline-test-"))
        try:
            self._lay_out(folder)
            return await self._run_in(folder, inputs)
        finally:
            await asyncio.to_thread(shutil.rmtree, folder)

    def run_sync(self) -> Outcome[T]:
        """Run it from a test without an event loop."""
        with asyncio.Runner() as runner:
            return runner.run(self.run())

    async def _run_in(self, folder: Path, inputs: dict[str, Any]) -> Outcome[T]:
        spec = _alone(self._spec, inputs, self._matrix, self._item)
        settings = spec.settings
        options = Options(
            state="memory:", raise_on_failure=False, capture="off", pools=dict(settings.pools), loop_block_action="warn"
        )
        program = Program(
            name="test",
            modules=[spec],
            phases=(settings.phase,) if settings.phase else (),
            params_type=None if self._script.params is None else type(self._script.params),
            resume="never",
            options=options,
        )
        request = RunRequest(
            params=self._script.params, options=options, workdir=folder, watchers=(self.events.extend,)
        )
        found: list[Outcome[T]] = []
        session_class = _session_class(self._script, found)
        await run_session(program, None, request, (), session_class=session_class)
        outcome = found[0]
        self._script.findings.extend(outcome.findings)
        return outcome

    # -------------------------------------------------------------- inputs

    def _check_names(self) -> None:
        """Refuse what the module does not have: a test that gives it believes something else."""
        known = {_edge_name(edge) for edge in self._spec.edges}
        if not isinstance(self._spec.each, tuple | dict | None) and self._spec.each is not None:
            known.add(_edge_name(self._spec.each))  # type: ignore[arg-type]
        for name in self._given:
            if name not in known:
                problem = f"it is no dependency of this module.{suggestion(name, known)}"
                raise UnseededInputError(self._spec.name, name, problem)

    def _inputs(self) -> dict[str, Any] | Skipped:
        """Make the inputs as the engine would, or say that it would not start the task."""
        inputs: dict[str, Any] = {}
        for edge in self._spec.edges:
            name = _edge_name(edge)
            if edge.param is None:
                continue
            given = self._given.get(name)
            if given is None:
                if edge.use != "optional":
                    raise UnseededInputError(self._spec.name, name, "give its result: .with_result(...)")
                given = [] if _is_many(edge) else None
            if edge.use == "value":
                failed = next((one for one in _listed(given) if not isinstance(one, Succeeded)), None)
                if failed is not None:
                    reason = Reason(code="dependency_failed", text=f"{name} did not succeed", blocked_by=name)
                    return Skipped(task_id=self._spec.name, reason=reason)
            inputs[edge.param] = given if edge.use == "outcome" else _values(given)
        return inputs

    def _lay_out(self, folder: Path) -> None:
        """Copy the given artifacts to where the engine would restore them."""
        for use in self._spec.settings.consumes:
            source = self._files.get((use.module.name, use.artifact))
            if source is None:
                name = f"{use.module.name}/{use.artifact}"
                raise UnseededInputError(self._spec.name, name, "give its file: .with_artifact(...)")
            into = folder / use.into
            into.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, into, dirs_exist_ok=True)
            else:
                shutil.copy2(source, into)


def _name_of(module: Any) -> str:
    if isinstance(module, Selector):
        assert module.reference is not None
        return f"{module.reference.kind} {module.reference.value}"
    return spec_of(module).name


def _edge_name(edge: Edge) -> str:
    return edge.to.name if isinstance(edge.to, ModuleRef) else f"{edge.to.kind} {edge.to.value}"


def _is_many(edge: Edge) -> bool:
    return not edge.same_key and (not isinstance(edge.to, ModuleRef) or edge.to.spec.is_expanded)


def _listed(given: Any) -> list[Any]:
    return given if isinstance(given, list) else [given]


def _values(given: Any) -> Any:
    if isinstance(given, list):
        return [_values(one) for one in given]
    return given.value if isinstance(given, Succeeded) else None


def _alone(spec: ModuleSpec, inputs: dict[str, Any], matrix: Mapping[str, object] | None, item: object) -> ModuleSpec:
    """Return the module without its dependencies: it gets the given inputs, and has one task."""
    settings = msgspec.structs.replace(spec.settings, consumes=(), cache=None, isolation="auto", always_run=False)

    def with_inputs(hook: Any) -> Any:
        return lambda *arguments, inputs=None: hook(*arguments, inputs=given)

    given = inputs
    return msgspec.structs.replace(
        spec,
        call=lambda ctx, inputs, item: spec.call(ctx, given, item),
        hooks={name: with_inputs(hook) for name, hook in spec.hooks.items()},
        edges=(),
        settings=settings,
        matrix=None if matrix is None else {axis: [value] for axis, value in matrix.items()},
        each=None if spec.each is None else (item,),
    )


def _session_class(script: Script, found: list[Any]) -> type[Session]:
    """Make a session whose commands and secrets are the script's, and that hands over the outcome of its one task."""

    class ScriptedDoors(NodeDoors):
        async def run(self, attempt: Attempt, argv: tuple[str | PathLike[str], ...], options: Mapping[str, Any]) -> Any:
            self._check(attempt)
            return script.run(argv, options)

        def secret(self, attempt: Attempt, name: str) -> Secret:
            value = script.secret(name)
            self._masker.register(value.reveal())
            return value

    class TesterSession(Session):
        doors_class = ScriptedDoors

        async def record_end(self, status: str) -> None:
            tasks: Sequence[Any] = self.opened.plan.document.tasks
            position = next(place for place, row in enumerate(tasks) if not row.join)
            outcome = self.outcome_of(position)
            row = tasks[position]
            if outcome is None:  # a gate that blocks is not final (PLAN-52)
                reason = Reason(code=row.reason or "blocked", text=row.reason_text or "")
                findings = self.ended_tasks.blocked_findings.get(position, ())
                outcome = Skipped(task_id=row.id, reason=reason, attempts=row.attempts, findings=findings)
            found.append(outcome)
            await super().record_end(status)

    return TesterSession
