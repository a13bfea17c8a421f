"""Stamp the tasks of a plan from its modules, with everything that a runner asks for. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from towline.modules.spec import ModuleSpec
from towline.planning.built import ArtifactInput, BuiltPlan, TaskInput
from towline.planning.digests import closure_digest, closure_part, edges_part, own_digest, own_head
from towline.planning.keys import paired_key
from towline.planning.records import EdgeUse, PlannedTask

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from towline.planning.links import Link
    from towline.planning.phases import Phases

STRENGTH: dict[EdgeUse, int] = {"value": 0, "order": 1, "outcome": 2, "optional": 3}
"""Of several edges between two tasks the plan shows the one that asks for most."""


class _Wiring(msgspec.Struct, gc=False):
    """The dependencies of one task, or of all tasks of a module when none is paired by key."""

    depends_on: tuple[str, ...] = ()
    places: tuple[int, ...] = ()
    edges: dict[str, EdgeUse] | None = None
    inputs: tuple[TaskInput, ...] = ()
    artifacts: tuple[ArtifactInput, ...] = ()
    edges_part: bytes = b""
    closure_part: str | None = ""
    """Made when the first task of the module is stamped: all above it have their digests by then."""


_ALONE = _Wiring()


class Stamper:
    """Makes the tasks of modules that were checked already: names are unique, links found, tiers known."""

    def __init__(
        self,
        modules: Sequence[ModuleSpec],
        links: Sequence[tuple[Link, ...]],
        tiers: Sequence[int],
        keys: Sequence[Sequence[tuple[str, dict[str, object]]] | None],
        phasing: Phases,
        code_digest: Callable[[ModuleSpec], str],
    ) -> None:
        self._modules, self._links, self._phasing = modules, links, phasing
        self._code_digest = code_digest
        self._tiers = tiers
        self._rows = _rows(modules, tiers, keys)
        self._ids = [row[0] for row in self._rows]
        self._index = {id: place for place, id in enumerate(self._ids)}
        self._tasks_of: list[tuple[int, ...]] = [
            (self._index[spec.name],) if own is None else tuple(self._index[f"{spec.name}[{key}]"] for key, _ in own)
            for spec, own in zip(modules, keys, strict=True)
        ]

    def plan(
        self,
        *,
        pipeline: str,
        program: str,
        phases: tuple[str, ...],
        params_digest: str,
        param_digests: dict[str, str],
    ) -> BuiltPlan:
        """Return the whole plan but for ``graph_digest``."""
        plan = BuiltPlan(
            pipeline=pipeline,
            program=program,
            phases=phases,
            params_digest=params_digest,
            param_digests=param_digests,
            graph_digest="",
            specs={spec.name: spec for spec in self._modules},
            tasks=[],
            index=self._index,
            tasks_of={spec.name: own for spec, own in zip(self._modules, self._tasks_of, strict=True)},
            depends_on=[],
            gates=[],
            inputs=[],
            artifacts=[],
            matrix={},
            demanded={},
        )
        self._stamp(plan)
        _demand(plan)
        return plan

    def _stamp(self, plan: BuiltPlan) -> None:
        """Make the tasks one by one; each finds the closure digests of those above it done."""
        closures = [""] * len(self._rows)
        templates: dict[int, _Template] = {}
        for place, (id, module, key, values) in enumerate(self._rows):
            template = templates.get(module)
            if template is None:
                template = self._template(module)
                if key is not None:
                    templates[module] = template
            wiring = template.wiring
            if wiring is None:
                wiring = self._wire(module, values or {})
            if wiring.closure_part is None:
                wiring.closure_part = closure_part([closures[above] for above in wiring.places])
            own = own_digest(template.head, wiring.edges_part, key)
            closures[place] = closure = closure_digest(own, wiring.closure_part)
            task = PlannedTask(
                id=id,
                module=template.spec.name,
                key=key,
                tier=template.tier,
                depends_on=wiring.depends_on,
                edges=wiring.edges,
                own_digest=own,
                closure_digest=closure,
                code_digest=template.code_digest,
            )
            if template.is_marked:
                _mark(task, template)
            plan.tasks.append(task)
            plan.depends_on.append(wiring.places)
            plan.gates.append(template.gates)
            plan.inputs.append(wiring.inputs)
            plan.artifacts.append(wiring.artifacts)
            if values:
                plan.matrix[place] = values

    def _template(self, module: int) -> _Template:
        """Gather what all tasks of a module share."""
        spec = self._modules[module]
        phase = self._phasing.name_of(module)
        paired, source = False, None
        for link in self._links[module]:
            paired = paired or link.same_key
            if link.each:
                source = self._ids[self._tasks_of[link.targets[0]][0]]
        gates, settings = self._phasing.gates_of(module), spec.settings
        is_special = settings.always_run or settings.gate or settings.at_most_once
        return _Template(
            spec,
            own_head(spec, phase),
            phase,
            self._tiers[module],
            None if paired else self._wire(module, {}),
            tuple([task for gate in gates for task in self._tasks_of[gate]]) if gates else (),
            tuple(sorted([self._ids[task] for gate in gates for task in self._tasks_of[gate]])) if gates else None,
            self._code_digest(spec),
            source,
            is_special or phase is not None or spec.each is not None,
        )

    def _wire(self, module: int, values: Mapping[str, object]) -> _Wiring:
        """Turn the links of a module into places of tasks; ``values`` are the task's own on its axes."""
        links = self._links[module]
        if not links:
            return _ALONE
        ids, tasks_of = self._ids, self._tasks_of
        kinds: dict[int, EdgeUse] = {}
        inputs: list[TaskInput] = []
        artifacts: list[ArtifactInput] = []
        only_values = True
        for link in links:
            use = link.use
            is_one = len(link.targets) == 1 and not link.same_key
            targets = tasks_of[link.targets[0]] if is_one else self._targets(link, values)
            for target in targets:
                known = kinds.setdefault(target, use)
                if known is not use and STRENGTH[use] < STRENGTH[known]:
                    kinds[target] = use
            if link.param is not None:
                inputs.append(TaskInput(link.param, use, targets, link.many))
            if link.artifact is not None:
                artifacts.append(ArtifactInput(link.artifact, link.into, targets, link.many))
            only_values = only_values and use == "value"
        places = tuple(sorted(kinds, key=ids.__getitem__)) if len(kinds) > 1 else tuple(kinds)
        depends_on = tuple([ids[place] for place in places])
        edges = None if only_values else {ids[one]: kinds[one] for one in places if kinds[one] != "value"} or None
        return _Wiring(depends_on, places, edges, tuple(inputs), tuple(artifacts), edges_part(depends_on, edges), None)

    def _targets(self, link: Link, values: Mapping[str, object]) -> tuple[int, ...]:
        """Find the tasks of a link that is paired by key, or has any number of modules: of a selector, or none."""
        if link.same_key:
            target = self._modules[link.targets[0]]
            return (self._index[f"{target.name}[{paired_key(list(target.matrix or ()), values)}]"],)
        chosen = [task for target in link.targets for task in self._tasks_of[target]]
        return tuple(sorted(chosen, key=self._ids.__getitem__))


class _Template(msgspec.Struct, gc=False):
    """What the tasks of one module share. ``wiring`` is ``None`` when each task is paired by its key."""

    spec: ModuleSpec
    head: bytes
    phase: str | None
    tier: int
    wiring: _Wiring | None
    gates: tuple[int, ...]
    gate_ids: tuple[str, ...] | None
    code_digest: str
    source: str | None
    is_marked: bool
    """Whether its tasks have more than the fields that every task has."""


def _mark(task: PlannedTask, template: _Template) -> None:
    """Write the rarer fields of a row; setting them on every row would cost as much as all the others."""
    settings = template.spec.settings
    task.phase, task.gates, task.source = template.phase, template.gate_ids, template.source
    task.always_run, task.gate, task.at_most_once = settings.always_run, settings.gate, settings.at_most_once
    task.join = template.spec.each is not None


_Row = tuple[str, int, str | None, "dict[str, object] | None"]


def _rows(
    modules: Sequence[ModuleSpec],
    tiers: Sequence[int],
    keys: Sequence[Sequence[tuple[str, dict[str, object]]] | None],
) -> list[_Row]:
    """Return (id, module, key, values) of all tasks, by tier, ties by id. Modules come sorted by name."""
    per_tier: list[list[_Row]] = [[] for _ in range(max(tiers, default=-1) + 1)]
    for place, (spec, own) in enumerate(zip(modules, keys, strict=True)):
        row_list = per_tier[tiers[place]]
        if own is None:
            row_list.append((spec.name, place, None, None))
        else:
            row_list.extend([(f"{spec.name}[{key}]", place, key, values) for key, values in own])
    for row_list in per_tier:
        row_list.sort(key=_id_of)
    return [row for row_list in per_tier for row in row_list]


def _id_of(row: _Row) -> str:
    return row[0]


def _demand(plan: BuiltPlan) -> None:
    """Fill ``demanded``. A condition that only a node can answer leaves open whether its task takes anything (ART-03)."""
    demanded = plan.demanded
    for place, consumed in enumerate(plan.artifacts):
        if not consumed:
            continue
        spec = plan.specs[plan.tasks[place].module]
        if any(callable(condition) for condition in (*spec.settings.run_if, *spec.settings.skip_if)):
            continue
        for artifact in consumed:
            for producer in artifact.tasks:
                takers = demanded.setdefault(producer, {})
                known = takers.get(artifact.artifact, ())
                if spec.name not in known:
                    takers[artifact.artifact] = (*known, spec.name)
