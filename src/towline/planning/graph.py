"""Build the plan of a program from its modules: the main road. Pure; the same for any order of modules (PLAN-02)."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from towline.errors.planning import CycleError, PlanBuildError, PlanTooLargeError
from towline.planning.closure import required_modules
from towline.planning.digests import graph_digest, params_digests
from towline.planning.keys import matrix_keys, matrix_size
from towline.planning.links import Links
from towline.planning.ordering import cycles_of, tiers_of
from towline.planning.phases import Phases
from towline.planning.tasks import Stamper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from towline.modules.spec import ModuleSpec
    from towline.planning.built import BuiltPlan
    from towline.planning.links import Link

MAX_TASKS = 100_000
"""MOD-21; ``Options.max_tasks`` changes it."""


def build_plan(
    specs: Sequence[ModuleSpec],
    *,
    code_digest: Callable[[ModuleSpec], str],
    pipeline: str = "pipeline",
    program: str = "",
    phases: Sequence[str] = (),
    params: Mapping[str, object] | None = None,
    secret_types: tuple[type, ...] = (),
    max_tasks: int = MAX_TASKS,
    check: Callable[[ModuleSpec], Iterable[str]] | None = None,
) -> BuiltPlan:
    """Turn modules and what they require into tasks, in topological order, with digests.

    Linear in tasks and edges, without recursion (PLAN-13).

    Args:
        specs: The modules that the pipeline was given; their order changes nothing.
        code_digest: Gives the version of a module's code (MOD-29); called once per module.
        pipeline: Name of the pipeline.
        program: Whose plan it is: ``<file stem>/<pipeline>``.
        phases: Names of the phases, in order.
        params: Values of the run's parameters by name, for their digests (PLAN-16).
        secret_types: Types of parameter values that no digest may cover.
        max_tasks: Most tasks that the plan may have, joins not counted.
        check: Gives further problems of one module, as the mode of the run demands (capabilities that
            no node can have, results that cannot be encoded).

    Raises:
        PlanBuildError: Holds every problem; ``CycleError`` when a cycle is among them (PLAN-03, PLAN-04).
        PlanTooLargeError: More than ``max_tasks`` tasks.
    """
    modules, problems = required_modules(specs)
    count = sum(1 if spec.matrix is None else matrix_size(spec.matrix) for spec in modules if spec.each is None)
    if count > max_tasks:
        raise PlanTooLargeError(count, max_tasks)

    finder = Links(modules)
    links = [finder.of(place) for place in range(len(modules))]
    phasing = Phases(phases, modules)
    needs = _needs(links, phasing)
    tiers = tiers_of(needs)
    keys = _keys(modules, problems)

    problems += finder.problems
    problems += phasing.problems(links)
    problems += _equal_ids(modules, keys)
    if check is not None:
        problems += [problem for spec in modules for problem in check(spec)]
    _refuse(problems, modules, links, needs, tiers)

    params_digest, per_param = params_digests(params or {}, secret=secret_types)
    plan = Stamper(modules, links, tiers, keys, phasing, code_digest).plan(
        pipeline=pipeline,
        program=program,
        phases=tuple(phases),
        params_digest=params_digest,
        param_digests=per_param,
    )
    plan.graph_digest = graph_digest(plan.tasks)
    return plan


def _needs(links: Sequence[Sequence[Link]], phasing: Phases) -> list[Sequence[int]]:
    """Return for each module the modules that it waits for, gates included."""
    needs: list[Sequence[int]] = []
    for place, own in enumerate(links):
        gates = phasing.gates_of(place)
        if len(own) == 1 and not gates:
            needs.append(own[0].targets)  # the commonest case in a large plan: what is there is shared
        else:
            needs.append([*[target for link in own for target in link.targets], *gates])
    return needs


def _keys(modules: Sequence[ModuleSpec], problems: list[str]) -> list[list[tuple[str, dict[str, object]]] | None]:
    """Expand the matrices (PLAN-10); ``None`` for a module with one task."""
    keys: list[list[tuple[str, dict[str, object]]] | None] = []
    for spec in modules:
        if spec.matrix is None:
            keys.append(None)
            continue
        try:
            keys.append(list(matrix_keys(spec.name, spec.matrix)))
        except ValueError as error:
            problems.append(f"{error} ({spec.source})")
            keys.append([])
    return keys


def _equal_ids(
    modules: Sequence[ModuleSpec], keys: Sequence[list[tuple[str, dict[str, object]]] | None]
) -> Iterable[str]:
    """Name the tasks of one module whose keys are equal, case ignored (PLAN-04); names are checked before."""
    for spec, own in zip(modules, keys, strict=True):
        if own is None:
            continue
        met: dict[str, str] = {}
        for key, _ in own:
            other = met.setdefault(key.casefold(), key)
            if other is not key:
                how = "twice" if other == key else f"beside {spec.name}[{other}], and they differ only in case"
                yield f"{spec.name} ({spec.source}) would have the task {spec.name}[{key}] {how}"


def _refuse(
    problems: list[str],
    modules: Sequence[ModuleSpec],
    links: Sequence[Sequence[Link]],
    needs: Sequence[Sequence[int]],
    tiers: Sequence[int],
) -> None:
    """Raise all problems as one error (PLAN-04)."""
    cycles = cycles_of(needs, tiers) if -1 in tiers else []
    texts = [_cycle_text(cycle, modules, links) for cycle in cycles] + sorted(set(problems))
    if cycles:
        raise CycleError(tuple(modules[place].name for place in cycles[0]), tuple(texts))
    if texts:
        raise PlanBuildError(tuple(texts))


def _cycle_text(cycle: Sequence[int], modules: Sequence[ModuleSpec], links: Sequence[Sequence[Link]]) -> str:
    """Write a cycle as ``a -> b -> a``, each step with the place that declares it."""
    names = [modules[place].name for place in cycle]
    steps: list[str] = []
    for place, target in itertools.pairwise(cycle):
        step = f"{modules[place].name} -> {modules[target].name}"
        declared = [link for link in links[place] if target in link.targets]
        if declared:
            how = "" if declared[0].use == "value" else f" ({declared[0].use})"
            steps.append(f"{step}{how} at {declared[0].source or modules[place].source}")
        else:
            steps.append(f"{step} because {modules[target].name} is a gate of an earlier phase")
    return f"modules wait for one another: {' -> '.join(names)} ({'; '.join(steps)}); remove one of these edges"
