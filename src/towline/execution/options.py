"""Everything that a run can be told in code; flags, variables and ``pyproject.toml`` win over it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from towline.artifacts.store import ArtifactStore
from towline.errors.configuration import ConfigurationError
from towline.errors.declaration import DeclarationError
from towline.execution.backend import ExecutionBackend
from towline.modules.conditions import Condition
from towline.modules.retry import Retry
from towline.modules.settings import Pool

if TYPE_CHECKING:
    from towline.offload import OffloadOptions
else:
    OffloadOptions = Any  # help() evaluates the fields of a record; nobody decodes this one, and numpy is optional

NOT_NEGATIVE = (
    "module_timeout_s",
    "always_run_budget_s",
    "cancel_grace_s",
    "terminate_grace_s",
    "hook_timeout_s",
    "loop_block_warning_s",
    "worker_timeout_s",
    "master_timeout_s",
)
AT_LEAST_ONE = ("parallelism", "max_abandoned", "max_tasks")
CHOICES: dict[str, tuple[str, ...]] = {
    "schedule": ("eager", "tiers"),
    "durability": ("process", "power"),
    "capture": ("auto", "off"),
    "secret_in_result": ("warn", "fail"),
    "ci_commands": ("defuse", "pass"),
    "loop_block_action": ("exit", "warn"),
}


if TYPE_CHECKING:
    from msgspec import Struct as _Spelt  # type checkers judge the keywords themselves
else:

    class _SpeltMeta(type(msgspec.Struct)):
        """Names the nearest option for a misspelt one, as the settings of a module do (MOD-08)."""

        def __call__(cls, *values: Any, **options: Any) -> Any:
            for name, value in options.items():
                if name not in cls.__struct_fields__:
                    from towline.identity import suggestion

                    near = suggestion(name, cls.__struct_fields__) or f" Known: {', '.join(cls.__struct_fields__)}"
                    raise DeclarationError("Options", name, value, f"there is no such option.{near}")
            return super().__call__(*values, **options)

    class _Spelt(msgspec.Struct, metaclass=_SpeltMeta):
        """A record that is made by hand."""


class Options(_Spelt, frozen=True, kw_only=True):
    """The options of a run. Fields that end in ``_s`` are seconds; 0 means "none" for a timeout or budget.

    ``parallelism``: bodies that run at once on one node; ``None`` is ``min(32, 4 x cores)``.
    ``keep_going``: after a failure, everything that does not depend on it still runs.
    ``pools``: tickets by name, for ``pools=`` of modules. ``require``: checked before the plan is stored.
    ``durability``: ``"process"`` survives kill -9, ``"power"`` a power cut. ``strict_values``: inputs are
    always decoded copies. ``state``: a folder or URL, default ``.towline/<pipeline>`` beside the target.
    ``loop_block_action``: what to do about a body that blocks the loop past its timeout; ``None`` is
    ``"exit"`` under ``main()`` and ``"warn"`` under ``run()``.

    Raises:
        DeclarationError: A value is out of range or not one of those allowed.
    """

    parallelism: int | None = None
    keep_going: bool = False
    schedule: Literal["eager", "tiers"] = "eager"
    module_timeout_s: float = 1800.0
    retries: int | Retry = 0
    pools: Mapping[str, int | Pool] = {}
    durability: Literal["process", "power"] = "process"
    strict_values: bool = False
    raise_on_failure: bool = True
    handle_signals: bool = False
    require: Sequence[Condition | Callable[[], bool]] = ()
    capture: Literal["auto", "off"] = "auto"
    no_cache: bool = False
    always_run_budget_s: float = 300.0
    always_run_on_interrupt: bool = False
    cancel_grace_s: float = 1.0
    terminate_grace_s: float = 5.0
    hook_timeout_s: float = 60.0
    loop_block_warning_s: float = 1.0
    loop_block_action: Literal["exit", "warn"] | None = None
    max_abandoned: int = 8
    max_tasks: int = 100_000
    commands: Callable[..., Any] | None = None
    dry_commands: bool = False
    secret_in_result: Literal["warn", "fail"] = "warn"
    ci_commands: Literal["defuse", "pass"] = "defuse"
    coordinator: Any = None
    """A URL, or a factory of your own (``coordination.contract.CoordinatorFactory``): tasks go to workers (DIST-01)."""
    workers: int = 0
    """Worker processes to start on this machine, which do the tasks of the run; 0: this process does them (DIST-10)."""
    state: str | None = None
    state_store: Callable[[str], Any] | None = None
    """Makes a ``towline.state.StateStore`` of your own for the pipeline of that name, in place of ``state``."""
    discovery: Any = None
    """A ``coordination.contract.MasterDiscovery`` of your own: workers find the coordinator's URL by it."""
    artifact_store: ArtifactStore | None = None
    """An artifact store of your own; who made it closes it."""
    offload: OffloadOptions | None = None
    """How ``ctx.offload`` places kernel calls, and which agents it dials; ``None``: the defaults, all local."""
    control: str | None = None
    worker_timeout_s: float = 30.0
    master_timeout_s: float = 60.0
    backend: ExecutionBackend | None = None

    def __post_init__(self) -> None:
        for name in NOT_NEGATIVE:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
                raise DeclarationError("Options", name, value, "a number of seconds, 0 or more")
        for name in AT_LEAST_ONE:
            value = getattr(self, name)
            if value is None and name == "parallelism":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise DeclarationError("Options", name, value, "a whole number of at least 1")
        if isinstance(self.workers, bool) or not isinstance(self.workers, int) or self.workers < 0:
            raise DeclarationError("Options", "workers", self.workers, "a whole number, 0 or more")
        for name, allowed in CHOICES.items():
            value = getattr(self, name)
            if value not in allowed and not (value is None and name == "loop_block_action"):
                raise DeclarationError("Options", name, value, " or ".join(repr(one) for one in allowed))
        for pool, tickets in self.pools.items():
            count = tickets if isinstance(tickets, int) else tickets.tickets
            if isinstance(count, bool) or count < 1:
                raise DeclarationError("Options", f"pools[{pool!r}]", count, "a whole number of at least 1")
        if self.state is not None and self.state_store is not None:
            advice = "give one of them: each counts as the state of the run"  # COORD-C87
            raise ConfigurationError("state", self.state, "given beside a state_store", advice)
        if self.workers and self.coordinator is not None:
            advice = "the workers of this machine meet at the master itself: give workers or a coordinator, not both"
            raise ConfigurationError("workers", self.workers, "given beside a coordinator", advice)  # DIST-13
        if self.backend is not None and (isinstance(self.backend, type) or not hasattr(self.backend, "execute")):
            raise DeclarationError("Options", "backend", self.backend, "an instance with an execute() method")


def node_cores() -> int:
    """Count the cores that this process may use: affinity and cgroup quota respected (SCHED-06)."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # macOS and Windows have no affinity call
        cores = os.cpu_count() or 1
    return max(1, min(cores, _cgroup_quota() or cores))


def _cgroup_quota() -> int | None:
    """Whole cores that the cgroup (version 2) grants, rounded up; ``None`` without a limit."""
    try:
        with open("/sys/fs/cgroup/cpu.max", encoding="ascii") as limits:
            quota, period = limits.read().split()
    except (OSError, ValueError):
        return None
    return None if quota == "max" else max(1, -(-int(quota) // int(period)))


def default_parallelism(cores: int) -> int:
    """How many bodies run at once unless told otherwise (DESIGN section 6)."""
    return min(32, 4 * cores)
