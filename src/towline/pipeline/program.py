"""A program: what a pipeline declares, and the plan that follows from it and its parameters."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from towline.errors.declaration import DeclarationError, TargetLoadError
from towline.execution.options import Options
from towline.modules.annotations import resolve_types
from towline.modules.spec import ModuleSpec
from towline.modules.versions import CodeVersions

if TYPE_CHECKING:
    from towline.masking.secret import Secret
    from towline.modules.target import TargetRef
    from towline.planning.built import BuiltPlan

OUTSIDE_FILES = ("__init__", "__main__")


class Program(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What was declared: modules, phases, the parameters' type, and how a run starts by default."""

    name: str
    modules: list[ModuleSpec]
    phases: tuple[str, ...] = ()
    params_type: type[Any] | None = None
    resume: Literal["crash", "auto", "never"] = "crash"
    options: Options
    file: str | None = None
    """The file that declares the pipeline; ``None`` in a notebook or a REPL."""
    module_name: str = "__main__"
    """The Python module that declares it."""

    @property
    def id(self) -> str:
        """Whose plan it is: ``<file stem or last package part>/<pipeline name>`` (``planning.md`` section 2)."""
        if self.file is None:
            return f"interactive/{self.name}"
        folder, base = os.path.split(os.path.abspath(self.file))
        stem = os.path.splitext(base)[0]
        return f"{os.path.basename(folder) if stem in OUTSIDE_FILES else stem}/{self.name}"

    def params_for(self, given: Any) -> Any:
        """Return the parameters of a run: those given, else the defaults of the declared type.

        Raises:
            DeclarationError: They are of another type.
            RunParamsError: One has no default and no value.
        """
        kind = self.params_type
        if kind is None:
            if given is not None:
                raise DeclarationError(self.name, "params", given, "nothing: the pipeline declares no params=")
            return None
        if given is None:
            try:
                return kind()
            except Exception as error:
                from towline.errors.configuration import RunParamsError
                from towline.modules.parameters import missing_parameters

                problem = missing_parameters(kind) or f"a {kind.__name__} cannot be made without values: {error}"
                raise RunParamsError(self.name, (problem,)) from error
        if not isinstance(given, kind):
            raise DeclarationError(self.name, "params", given, f"a {kind.__name__}")
        return given

    def specs(self) -> dict[str, ModuleSpec]:
        """Every module of the program by name: those that were given and what they require."""
        from towline.planning.closure import required_modules

        modules, _ = required_modules([resolve_types(spec) for spec in self.modules])
        return {spec.name: spec for spec in modules}

    def build(self, params: Any, options: Options, *, must_travel: bool) -> BuiltPlan:
        """Plan the program for these parameters.

        ``must_travel``: every result has to be encodable, or the plan is refused (SER-02).

        Raises:
            PlanBuildError: Holds every problem that can be found before running.
        """
        # A child process loads the program and plans nothing.
        from towline.pipeline.module_problems import problems_with
        from towline.planning.graph import build_plan

        return build_plan(
            self.modules,
            code_digest=CodeVersions().of,
            pipeline=self.name,
            program=self.id,
            phases=self.phases,
            params=params_mapping(params),
            secret_types=_secret_types(),
            max_tasks=options.max_tasks,
            check=lambda spec: problems_with(spec, options, must_travel=must_travel),
        )


def refuse_without_target(built: BuiltPlan, target: TargetRef | None) -> None:
    """Refuse process isolation for a program that no other process can load (MOD-27).

    Raises:
        TargetLoadError: It lives in a notebook, a REPL, ``-c`` or stdin.
    """
    if target is not None:
        return
    isolated = sorted(name for name, spec in built.specs.items() if spec.settings.isolation == "process")
    if isolated:
        cause = "it is no global of a file or package, so a child process cannot load it"
        hint = f'Put it into a file, or leave out isolation="process" of {", ".join(isolated)}.'
        raise TargetLoadError(built.pipeline, cause, hint)


def module_of_caller(depth: int) -> str:
    """Return the name of the Python module whose code stands ``depth`` frames above the caller."""
    return str(sys._getframe(depth + 1).f_globals.get("__name__", "__main__"))


def file_of_caller(depth: int) -> str | None:
    """Return the file of the code that stands ``depth`` frames above the caller of this function."""
    file = sys._getframe(depth + 1).f_globals.get("__file__")
    return file if isinstance(file, str) else None


def params_mapping(params: Any) -> dict[str, Any]:
    """Return the parameters by name, whatever kind of record they are."""
    if params is None:
        return {}
    if isinstance(params, msgspec.Struct):
        return {name: getattr(params, name) for name in params.__struct_fields__}
    fields = getattr(params, "model_fields", None) or getattr(params, "__dataclass_fields__", None)
    if fields is None:
        fields = {attribute.name: None for attribute in getattr(params, "__attrs_attrs__", ())}
    return {name: getattr(params, name) for name in fields}


def secrets_of(params: Any) -> list[Secret]:
    """Return the parameters that are secrets: to be masked in all that is shown (MOD-23).

    An empty one is none yet, as the default of a parameter that is not always needed; it stands everywhere (SEC-06).
    """
    (kind,) = _secret_types()
    return [value for value in params_mapping(params).values() if isinstance(value, kind) and value]


def _secret_types() -> tuple[type[Secret]]:
    from towline.masking.secret import Secret

    return (Secret,)
