"""A pipeline as the command line sees it: the composition root stands above and is not known here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from towline.execution.options import Options
    from towline.execution.report import RunReport
    from towline.execution.run_request import RunRequest
    from towline.modules.spec import ModuleSpec
    from towline.planning.deciding import ResumeOption
    from towline.planning.plan import Plan


class SeenProgram(Protocol):
    """What a pipeline declares."""

    @property
    def name(self) -> str: ...

    @property
    def options(self) -> Options: ...

    @property
    def params_type(self) -> type[Any] | None: ...

    @property
    def file(self) -> str | None: ...

    @property
    def resume(self) -> ResumeOption: ...


class SeenPipeline(Protocol):
    """What the command line can ask of a pipeline."""

    name: str

    @property
    def program(self) -> SeenProgram: ...

    def specs(self) -> Mapping[str, ModuleSpec]:
        """The modules of the program by name, those that are required included."""
        ...

    async def plan_for(self, request: RunRequest) -> Plan:
        """Plan what a run with this request would do."""
        ...

    async def run_for(self, request: RunRequest) -> tuple[RunReport, BaseException | None]:
        """Run as asked; never raises for a failure of a task."""
        ...

    async def work_for_all(self, request: RunRequest) -> int:
        """Work for every run of the program as they come; returns the exit code."""
        ...

    async def work_for(self, request: RunRequest, run_id: str) -> int:
        """Work for the master of a run; returns the exit code."""
        ...

    def check_for(self, request: RunRequest) -> tuple[list[str], list[str]]:
        """Find what a run would be refused for, and what is allowed but hardly meant; runs nothing."""
        ...
