"""``Pipeline``: a named set of modules with everything they require, and the doors to run it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, TypeVar, overload

from towline.errors.declaration import DeclarationError
from towline.errors.run import RunActiveError
from towline.execution.options import Options
from towline.execution.run_request import RunRequest
from towline.identity import MODULE_NAME, suggestion
from towline.modules.kinds import is_module
from towline.modules.reference import spec_of
from towline.pipeline.garbage import collections_paused
from towline.pipeline.program import Program, file_of_caller, module_of_caller

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from towline.clock import Clock
    from towline.execution.observers import Observer
    from towline.execution.report import RunReport
    from towline.modules.kinds import AnyModule
    from towline.modules.spec import ModuleSpec
    from towline.planning.plan import Plan

Params = TypeVar("Params")

DEFAULT_OPTIONS = Options()
KEYWORDS = ("phases", "params", "resume", "options")
RESUME_MODES = ("crash", "auto", "never")


def _refuse_unknown(name: str, setting: str, value: object) -> NoReturn:
    """Refuse a keyword that ``Pipeline`` does not have, with the nearest; many are options of a run (MOD-08)."""
    if setting in Options.__struct_fields__:
        allowed = f"it is an option of the run: options=Options({setting}=...)"
    else:
        allowed = "there is no such keyword." + (suggestion(setting, KEYWORDS) or f" Known: {', '.join(KEYWORDS)}")
    raise DeclarationError(name, setting, value, allowed)


class Pipeline(Generic[Params]):
    """A named set of modules; whatever they require comes along.

    ``phases``: names that modules may use in ``phase=``, in order. ``params``: the type of the run's
    parameters (dataclass, msgspec or pydantic), read by ``ctx.params(Kind)``. ``resume``: what a plain run
    does with an earlier plan: ``"crash"`` goes on with a run that never reached its end, ``"auto"`` also
    after a failure, ``"never"`` starts anew.

    Raises:
        DeclarationError: A wrong name, module, phase, mode or option.
    """

    name: str

    @overload
    def __init__(
        self: Pipeline[None],
        name: str,
        modules: Sequence[AnyModule],
        *,
        phases: Sequence[str] = (),
        resume: Literal["crash", "auto", "never"] = "crash",
        options: Options = ...,
    ) -> None: ...
    @overload
    def __init__(
        self,
        name: str,
        modules: Sequence[AnyModule],
        *,
        params: type[Params],
        phases: Sequence[str] = (),
        resume: Literal["crash", "auto", "never"] = "crash",
        options: Options = ...,
    ) -> None: ...
    def __init__(
        self,
        name: str,
        modules: Sequence[AnyModule],
        *,
        params: type[Any] | None = None,
        phases: Sequence[str] = (),
        resume: Literal["crash", "auto", "never"] = "crash",
        options: Options = DEFAULT_OPTIONS,
        **unknown: Any,
    ) -> None:
        for setting, value in unknown.items():
            _refuse_unknown(name, setting, value)
        if not isinstance(name, str) or not MODULE_NAME.match(name):
            raise DeclarationError(
                "Pipeline",
                "name",
                name,
                "up to 120 characters: a letter or _, then letters, digits or _.()=,- and space",
            )
        if isinstance(modules, str) or not isinstance(modules, list | tuple):
            raise DeclarationError(name, "modules", modules, "a list of modules")
        for one in modules:
            if not is_module(one):
                raise DeclarationError(
                    name, "modules", one, "modules: functions with @module, module classes, instances"
                )
        if isinstance(phases, str) or not all(isinstance(phase, str) and phase for phase in phases):
            raise DeclarationError(name, "phases", phases, "a list of names")
        if resume not in RESUME_MODES:
            allowed = "'crash', 'auto' or 'never'" + suggestion(str(resume), RESUME_MODES)
            raise DeclarationError(name, "resume", resume, allowed)
        if not isinstance(options, Options):
            raise DeclarationError(name, "options", options, "an Options(...)")
        self.name = name
        self.program = Program(
            name=name,
            modules=[spec_of(one) for one in modules],
            phases=tuple(phases),
            params_type=params,
            resume=resume,
            options=options,
            file=file_of_caller(1),
            module_name=module_of_caller(1),
        )
        self._observers: list[Observer] = []
        self._active = False

    def __repr__(self) -> str:
        return f"<pipeline {self.name}>"

    def listen(self, observer: Observer) -> None:
        """Tell an observer of every later run (RUN-07)."""
        self._observers.append(observer)

    async def plan(self, params: Params | None = None) -> Plan:
        """Plan without running: tasks, tiers, skips and estimates. Writes nothing and runs no body (PLAN-11)."""
        return await self.plan_for(RunRequest(params=params, options=self.program.options))

    async def run(self, params: Params | None = None) -> RunReport:
        """Plan and run; returns the report of a run that succeeded.

        Raises:
            PipelineFailedError, PipelineBlockedError, PipelineCancelledError: It did not; each has the report.
                With ``Options(raise_on_failure=False)`` the report is returned instead.
            RunActiveError: This object is running already.
            TowlineError: Nothing ran: the text says why.
        """
        request = RunRequest(params=params, options=self.program.options)
        report, cause = await self.run_for(request)
        return self.judge(report, cause, request.options)

    def run_sync(self, params: Params | None = None) -> RunReport:
        """Run from code without an event loop.

        Raises:
            RunningLoopError: Called inside a running loop: await :meth:`run` there.
            TargetLoadError: Called while the file is being loaded as a target (MOD-26).
        """
        with collections_paused():
            from towline.execution.own_loop import run_on_own_loop
            from towline.pipeline.entry import refuse_inner_loop

        refuse_inner_loop("run_sync()")
        return run_on_own_loop(self.run(params))

    def main(self, argv: Sequence[str] | None = None) -> NoReturn:
        """Be this pipeline's command line: ``run`` (default), ``plan``, ``check``, ``resume``. Ends by ``SystemExit``."""
        with collections_paused():
            from towline.pipeline.entry import refuse_inner_loop

        refuse_inner_loop("main()")
        from towline.cli.main import pipeline_main

        pipeline_main(self, argv)

    # -------------------------------------------------------------- for the command line

    async def plan_for(self, request: RunRequest) -> Plan:
        """Plan what a run with this request would do."""
        from towline.pipeline.preview import preview

        return await preview(self.program, request)

    def check_for(self, request: RunRequest) -> tuple[list[str], list[str]]:
        """Find problems and doubtful things without running anything (CLI-11)."""
        from towline.pipeline.preview import problems_of

        return problems_of(self.program, request)

    def specs(self) -> Mapping[str, ModuleSpec]:
        """The modules of the program by name, those that are required included."""
        return self.program.specs()

    async def run_for(self, request: RunRequest, clock: Clock | None = None) -> tuple[RunReport, BaseException | None]:
        """Run as asked; returns the report and the exception of the root failure, and never raises for a failure."""
        if self._active:
            raise RunActiveError(self.name)
        from towline.modules.target import target_of

        with collections_paused():
            from towline.pipeline.running import run_session
            from towline.pipeline.session import Session

        self._active = True
        try:
            target = target_of(self, self.program.module_name)
            session_class: type[Session] = Session
            options = request.options
            if request.distributed is not None or options.coordinator is not None or options.workers:
                from towline.pipeline.master_session import MasterSession, as_master

                request, session_class = as_master(request), MasterSession
                if request.distributed.workers:
                    from towline.pipeline.embedded_session import EmbeddedSession, refuse_unstartable

                    refuse_unstartable(self.program, target, request)
                    session_class = EmbeddedSession
            elif request.options.backend is not None:
                from towline.pipeline.backend_session import BackendSession

                session_class = BackendSession
            return await run_session(self.program, target, request, self._observers, clock, session_class)
        finally:
            self._active = False

    async def work_for(self, request: RunRequest, run_id: str, **more: Any) -> int:
        """Work for the master of a run; returns the exit code (DIST-15)."""
        from towline.modules.target import target_of
        from towline.pipeline.worker_run import WorkerRun

        target = target_of(self, self.program.module_name)
        return await WorkerRun(self.program, target, request, run_id, **more).run()

    async def work_for_all(self, request: RunRequest) -> int:
        """Work for every run of this program as they come; returns the exit code (DIST-09)."""
        from towline.modules.target import target_of
        from towline.pipeline.fleet import Fleet

        return await Fleet(self.program, target_of(self, self.program.module_name), request).run()

    def judge(self, report: RunReport, cause: BaseException | None, options: Options) -> RunReport:
        """Return the report of a success, raise that of anything else (RUN-53)."""
        from towline.errors.run import PipelineBlockedError, PipelineCancelledError, PipelineFailedError

        if report.status == "succeeded" or not options.raise_on_failure:
            return report
        if report.status == "blocked":
            raise PipelineBlockedError(report)
        if report.status == "cancelled":
            raise PipelineCancelledError(report)
        raise PipelineFailedError(report) from cause
