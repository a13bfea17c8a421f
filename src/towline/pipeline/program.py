"""A program: what a pipeline declares, and the plan that follows from it and its parameters."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from towline.errors.declaration import DeclarationError, TargetLoadError
from towline.errors.values import ResultTypeError, ValueTravelError
from towline.execution.limits import ModuleRules, RunLimits
from towline.execution.options import Options, default_parallelism, node_cores
from towline.execution.taskrun import LOOP, PROCESS, THREAD, ModuleKind
from towline.modules.annotations import resolve_types
from towline.modules.capabilities import in_words, is_impossible
from towline.modules.retry import Retry
from towline.modules.spec import NO_SETTINGS, Edge, ModuleRef, ModuleSpec
from towline.modules.versions import code_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from towline.masking.secret import Secret
    from towline.modules.target import TargetRef
    from towline.planning.built import BuiltPlan
    from towline.serialization.codec import Codec

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
        from towline.planning.graph import build_plan  # a child process loads the program and plans nothing

        return build_plan(
            self.modules,
            code_digest=code_version,
            pipeline=self.name,
            program=self.id,
            phases=self.phases,
            params=params_mapping(params),
            secret_types=_secret_types(),
            max_tasks=options.max_tasks,
            check=lambda spec: _problems(spec, options, must_travel=must_travel),
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
    """Return the parameters that are secrets: to be masked in all that is shown (MOD-23)."""
    (kind,) = _secret_types()
    return [value for value in params_mapping(params).values() if isinstance(value, kind)]


def _secret_types() -> tuple[type[Secret]]:
    from towline.masking.secret import Secret

    return (Secret,)


def _problems(spec: ModuleSpec, options: Options, *, must_travel: bool) -> Iterable[str]:
    """Name what this run cannot do with a module (COORD-C25, SCHED-11, SER-02)."""
    settings = spec.settings
    if settings is NO_SETTINGS and not must_travel:
        return
    where = f" ({spec.source})" if spec.source else ""
    if settings.requires is not None and is_impossible(settings.requires):
        yield f"{spec.name}: requires {in_words(settings.requires)}, which no machine can be{where}"
    for pool, wanted in settings.pools.items():
        declared = options.pools.get(pool)
        if declared is None:
            known = ", ".join(sorted(options.pools)) or "none are declared"
            yield f"{spec.name}: pool {pool!r} is not in Options.pools ({known}){where}"
            continue
        tickets = declared if isinstance(declared, int) else declared.tickets
        if wanted > tickets:
            yield f"{spec.name}: wants {wanted} tickets of pool {pool!r}, which has {tickets}{where}"
    if must_travel or settings.isolation == "process" or settings.cache is not None:
        try:
            codec_of(spec)
        except ValueTravelError as error:
            yield f"{error}{where}"
    if settings.isolation == "process" and not must_travel:
        yield from _unreadable_inputs(spec, where)


def _unreadable_inputs(spec: ModuleSpec, where: str) -> Iterable[str]:
    """Name the results that cannot travel to a body in a process of its own (SER-02)."""
    read = [edge.to.spec for edge in spec.edges if edge.param is not None and isinstance(edge.to, ModuleRef)]
    if isinstance(spec.each, Edge) and isinstance(spec.each.to, ModuleRef):
        read.append(spec.each.to.spec)
    for source in read:
        try:
            codec_of(source)
        except ValueTravelError as error:
            yield f"{spec.name} runs in a process and reads {source.name}: {error}{where}"


def codec_of(spec: ModuleSpec) -> Codec:
    """Return the codec of a module's results.

    Raises:
        ResultTypeError: The type has no JSON form (SER-02).
    """
    from towline.serialization.codec import codec_for

    try:
        return codec_for(spec.result_type)
    except ResultTypeError as error:
        raise error.for_module(spec.name) from error.__cause__


def kinds_of(built: BuiltPlan, options: Options, *, isolate_all: bool) -> dict[str, ModuleKind]:
    """Work out, once per module, how its tasks run."""
    default = options.retries if isinstance(options.retries, Retry) else Retry(options.retries)
    kinds = {}
    for name, spec in built.specs.items():
        settings = spec.settings
        is_isolated = isolate_all or settings.isolation == "process"
        place = PROCESS if is_isolated else THREAD if spec.sync else LOOP
        try:
            codec: Codec | None = None if spec.result_type is None or spec.result_type is type(None) else codec_of(spec)
        except ValueTravelError:
            codec = None  # a plain local run keeps such a value in memory alone (SER-03)
        kinds[name] = ModuleKind(
            spec,
            timeout_s=options.module_timeout_s if settings.timeout_s is None else settings.timeout_s,
            retry=default if settings.retries is None and not settings.at_most_once else settings.retries or Retry(0),
            place=place,
            codec=codec,
            store_value=True,
        )
    return kinds


def rules_of(specs: Mapping[str, ModuleSpec]) -> dict[str, ModuleRules]:
    """Give the scheduler what it needs of each module's settings."""
    rules = {}
    for name, spec in specs.items():
        settings = spec.settings
        if settings is NO_SETTINGS:
            continue  # the scheduler takes a module without an entry as one without rules
        rules[name] = ModuleRules(
            priority=settings.priority,
            locks=settings.locks,
            exclusive=settings.exclusive,
            pools=dict(settings.pools),
            hint=settings.hint,
            always_run=settings.always_run,
        )
    return rules


def node_pools_of(options: Options) -> dict[str, int]:
    """Return the tickets of the pools that each node counts for itself (SCHED-11)."""
    return {
        name: pool if isinstance(pool, int) else pool.tickets
        for name, pool in options.pools.items()
        if isinstance(pool, int) or pool.scope == "node"
    }


def limits_of(options: Options) -> RunLimits:
    """Give the scheduler the rights of this node."""
    cores = node_cores()
    return RunLimits(
        parallelism=options.parallelism or default_parallelism(cores),
        cores=cores,
        pools={name: pool if isinstance(pool, int) else pool.tickets for name, pool in options.pools.items()},
        keep_going=options.keep_going,
        schedule=options.schedule,
        always_run_budget_s=options.always_run_budget_s,
        max_tasks=options.max_tasks,
    )
