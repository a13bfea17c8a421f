"""What the settings of modules and the options of a run mean for the runner and the scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from towline.errors.values import ValueTravelError
from towline.execution.limits import ModuleRules, RunLimits
from towline.execution.options import default_parallelism, node_cores
from towline.execution.taskrun import LOOP, PROCESS, THREAD, ModuleKind
from towline.modules.retry import Retry
from towline.modules.spec import NO_SETTINGS
from towline.pipeline.module_problems import codec_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from towline.execution.options import Options
    from towline.modules.spec import ModuleSettings, ModuleSpec
    from towline.planning.built import BuiltPlan
    from towline.serialization.codec import Codec


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
            options.module_timeout_s if settings.timeout_s is None else settings.timeout_s,
            default if settings.retries is None and not settings.at_most_once else settings.retries or Retry(0),
            place,
            codec,
            (settings is NO_SETTINGS or not _has_surroundings(settings)) and not spec.hooks,
        )
    return kinds


def _has_surroundings(settings: ModuleSettings) -> bool:
    """Whether something is to be done around the attempts of a body, in declared settings."""
    around = (settings.run_if, settings.skip_if, settings.produces, settings.consumes, settings.cache)
    return any(around)


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
