"""The scheduler against an oracle that knows nothing of queues: definitions over the finished run."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_world import World, task

from towline.execution.limits import ModuleRules
from towline.execution.scheduling import Dispatch
from towline.planning.records import PlannedTask
from towline.testing import clause

KINDS = ["value", "value", "value", "order", "optional", "outcome"]
ENDS = ["succeeded"] * 8 + ["failed", "timed_out", "skipped", "ignored"]

seeds = st.integers(0, 2**32)


class Plan:
    """A random plan with what will happen in it; durations differ, so that no two ends coincide."""

    def __init__(self, seed: int, *, most: int, rights: bool = False) -> None:
        random = Random(seed)
        count = random.randrange(1, most)
        self.rows: list[PlannedTask] = []
        self.children: dict[str, list[PlannedTask]] = {}
        self.rules: dict[str, ModuleRules] = {}
        plain: list[str] = []
        for n in range(count):
            name = f"t{n}"
            before = [row.id for row in self.rows]
            needs = random.sample(before, min(len(before), random.choice([0, 1, 1, 2, 3])))
            links = [f"{need}:{kind}" if (kind := random.choice(KINDS)) != "value" else need for need in needs]
            if plain and random.random() < 0.15:
                source = random.choice(plain)
                links = [link for link in links if link.split(":")[0] != source]
                row = task(name, source, *links, join=True, source=source)
                self.children[name] = [
                    task(f"{name}[{k}]", source, *links, module=name, key=str(k), parent=name, item=k)
                    for k in range(random.randrange(0, 4))
                ]
            else:
                row = task(name, *links, always_run=random.random() < 0.1)
                plain.append(name)
            self.rows.append(row)
            self.rules[name] = self._rules(random) if rights else ModuleRules(priority=random.choice([0, 0, 100]))
        bodies = [row.id for row in self.rows if not row.join] + [c.id for cs in self.children.values() for c in cs]
        self.ends = {name: random.choice(ENDS) for name in bodies}
        self.seconds = {name: round(random.uniform(0.01, 1.0), 9) for name in bodies}
        self.slots = random.choice([1, 2, 3, 8])

    @staticmethod
    def _rules(random: Random) -> ModuleRules:
        return ModuleRules(
            priority=random.choice([-100, 0, 0, 100]),
            locks=frozenset(random.sample("abc", random.choice([0, 0, 0, 1, 2]))),
            exclusive=random.random() < 0.05,
            pools={"p": random.choice([1, 2, 3])} if random.random() < 0.2 else {},
            hint=random.choice([None, None, "cpu", "io"]),
        )


def accepts(row: PlannedTask, need: str, world: World) -> bool:
    kind = (row.edges or {}).get(need, "value")
    state = world.states[need]
    if kind in ("optional", "outcome") or state == "succeeded" or (row.always_run and need != row.source):
        return True
    settled = world.settled.get(need)
    is_ignored = settled.ignored if settled is not None else state == "failed" and world.ends[need] == "ignored"
    return kind == "order" and is_ignored


def end_of(name: str, world: World) -> str:
    return {"ignored": "failed"}.get(world.ends[name], world.ends[name])


@clause("SCHED-21", "RUN-51", "PLAN-42", "PLAN-45")
@settings(max_examples=120, deadline=None)
@given(seeds)
def test_with_keep_going_every_end_follows_from_the_ends_before_it(seed: int) -> None:
    """Runs exactly if every edge accepts, starts exactly when the last dependency ended."""
    plan = Plan(seed, most=60)
    world = World(
        *plan.rows, children=plan.children, ends=plan.ends, seconds=plan.seconds, rules=plan.rules, keep_going=True
    ).run()

    ran = {name: end for name, end in plan.ends.items() if name in world.started}
    assert world.status == ("failed" if {"failed", "timed_out"} & set(ran.values()) else "succeeded")
    for row in world.rows:
        blocking = [need for need in row.depends_on if not accepts(row, need, world)]
        if row.join:
            states = [world.states[one.id] for one in plan.children[row.id] if one.id in world.states]
            worst = next((bad for bad in ("failed", "timed_out", "cancelled", "skipped") if bad in states), None)
            expected = worst or ("skipped" if blocking else "succeeded")
        else:
            expected = "skipped" if blocking else end_of(row.id, world)
        assert world.states[row.id] == expected, row
        if expected == "skipped" and not row.join and blocking:
            cause = world.settled[row.id].blocked_by
            assert cause is not None
            assert world.states[cause] != "succeeded"
            code = "dependency_skipped" if world.states[cause] == "skipped" else "dependency_failed"
            assert world.codes[row.id] == code
        if row.id in world.started and row.depends_on:
            ends = [end_time(need, world) for need in row.depends_on]
            assert world.started[row.id] == max(ends)


def end_time(name: str, world: World) -> float:
    if name in world.finished:
        return world.finished[name]
    place = world.place(name)
    return next(
        now for now, _, made in world.log if any(getattr(one, "state", None) and one.task == place for one in made)
    )


@clause("RUN-50", "RUN-55", "PLAN-44")
@settings(max_examples=120, deadline=None)
@given(seeds)
def test_after_the_first_failure_only_always_run_tasks_start(seed: int) -> None:
    """Every task has an end, always-run tasks run once, and nothing else starts after the failure."""
    plan = Plan(seed, most=60)
    world = World(*plan.rows, children=plan.children, ends=plan.ends, seconds=plan.seconds, rules=plan.rules).run()

    failures = [
        world.finished[name]
        for name, end in plan.ends.items()
        if end in ("failed", "timed_out") and world.states.get(name) == end
    ]
    assert set(world.states) == {row.id for row in world.rows}
    for row in world.rows:
        if row.always_run:
            assert world.order.count(row.id) == 1
            assert world.states[row.id] == end_of(row.id, world)
        elif failures and row.id in world.started:
            assert world.started[row.id] <= min(failures)
        if world.codes.get(row.id) == "dependency_failed":
            assert world.states[str(world.settled[row.id].blocked_by)] in ("failed", "timed_out", "cancelled")
    assert world.status == ("failed" if failures else "succeeded")


@clause("SCHED-02", "SCHED-05", "SCHED-06", "SCHED-07", "SCHED-08", "SCHED-11")
@settings(max_examples=120, deadline=None)
@given(seeds)
def test_rights_are_never_exceeded_and_never_left_unused(seed: int) -> None:
    """At each moment: no right has too many holders, and no ready task waits without one that is busy."""
    plan = Plan(seed, most=60, rights=True)
    world = World(
        *plan.rows,
        children=plan.children,
        ends=plan.ends,
        seconds=plan.seconds,
        rules=plan.rules,
        keep_going=True,
        parallelism=plan.slots,
        cores=2,
        pools={"p": 3},
    )
    told = world._tell

    def tell_and_look(event: object) -> None:
        told(event)
        if world.status is None:
            look(world, plan)

    world._tell = tell_and_look  # type: ignore[method-assign]
    world.run()

    assert world.status is not None
    assert world.stuck is None


def look(world: World, plan: Plan) -> None:
    running = [world.rows[place] for place in world.running]
    rules = [plan.rules[row.module] for row in running]
    locks = [lock for rule in rules for lock in rule.locks]
    tickets = sum(rule.pools.get("p", 0) for rule in rules)
    cpus = sum(rule.hint == "cpu" for rule in rules)
    alone = any(rule.exclusive for rule in rules)
    assert len(running) <= plan.slots
    assert len(locks) == len(set(locks))
    assert tickets <= 3
    assert cpus <= 2
    assert not alone or len(running) == 1
    ready = [
        row
        for row in world.rows
        if not row.join
        and row.id not in world.states
        and row.id not in world.started
        and all(need in world.states and accepts(row, need, world) for need in row.depends_on)
    ]
    if len(running) == plan.slots or alone or any(plan.rules[row.module].exclusive for row in ready):
        return  # full, or draining for one that must be alone
    for row in ready:
        rule = plan.rules[row.module]
        is_blocked = (
            any(lock in locks for lock in rule.locks)
            or tickets + rule.pools.get("p", 0) > 3
            or (rule.hint == "cpu" and cpus == 2)
        )
        assert is_blocked, f"{row.id} could have started"


@clause("SCHED-01")
@settings(max_examples=40, deadline=None)
@given(seeds)
def test_the_same_inputs_give_the_same_decisions(seed: int) -> None:
    """A recorded run replays exactly: that is how a fault is studied."""
    plan = Plan(seed, most=120, rights=True)

    def recorded() -> list[object]:
        world = World(
            *plan.rows,
            children=plan.children,
            ends=plan.ends,
            seconds=plan.seconds,
            rules=plan.rules,
            parallelism=plan.slots,
            cores=2,
            pools={"p": 3},
        ).run()
        return world.log

    first = recorded()
    assert first == recorded()

    replay = World(
        *plan.rows, rules=plan.rules, seconds=plan.seconds, parallelism=plan.slots, cores=2, pools={"p": 3}
    ).scheduler
    for now, event, decisions in first:  # type: ignore[misc]
        assert replay.on(event, now) == decisions


@clause("SCHED-03")
@settings(max_examples=60, deadline=None)
@given(seeds)
def test_what_starts_in_one_list_starts_in_order(seed: int) -> None:
    """Effective priority and critical path, worked out here by walking all ways."""
    plan = Plan(seed, most=25)
    rows = [row for row in plan.rows if not row.join and not set(row.depends_on) & set(plan.children)]
    names = {row.id for row in rows}
    rows = [row for row in rows if set(row.depends_on) <= names]
    while len(kept := [row for row in rows if set(row.depends_on) <= {one.id for one in rows}]) < len(rows):
        rows = kept
    behind = {row.id: [one for one in rows if row.id in one.depends_on] for row in rows}

    def priority(row: PlannedTask) -> int:
        return max([plan.rules[row.module].priority, *[priority(one) for one in behind[row.id]]])

    def path(row: PlannedTask) -> float:
        return plan.seconds[row.id] + max([path(one) for one in behind[row.id]], default=0.0)

    world = World(*rows, seconds=plan.seconds, rules=plan.rules, keep_going=True, parallelism=3).run()

    order = {row.id: (-priority(row), -path(row), place) for place, row in enumerate(rows)}
    for _, _, made in world.log:
        started = [world.rows[one.task].id for one in made if isinstance(one, Dispatch)]
        assert started == sorted(started, key=order.__getitem__)
