"""How a process takes part in a distributed run: options, role, names (DIST-01 to 09)."""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from towline.coordination.contract import CoordinatorFactory
from towline.errors.configuration import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from towline.execution.options import Options


Role = Literal["master", "worker"]

STATE_OWNER_LEASE_S = 30.0
"""The longest time after which a shared state gives up a dead owner, but for S3 (``planning.md``)."""

CI_RUN_VARIABLES = (
    ("GITHUB_RUN_ID", "GITHUB_RUN_ATTEMPT"),
    ("CI_PIPELINE_ID", ""),
    ("BUILD_BUILDID", "SYSTEM_JOBATTEMPT"),
    ("CIRCLE_WORKFLOW_ID", ""),
    ("BUILDKITE_BUILD_ID", "BUILDKITE_RETRY_COUNT"),
)
"""What names one doing of a pipeline on a known CI: its run, and the attempt at it. Never a commit (DIST-04)."""


class DistributedOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of distributed mode; fields that end in ``_s`` are seconds.

    ``coordinator``: a URL, or a factory of the user's own. ``workers``: processes that the master starts on this machine,
    which meet it at a coordinator of its own; then ``coordinator`` is ``memory:`` (DIST-10). ``role``: ``"auto"`` is the master for index 0.
    ``minimum_workers``: how many the master waits for before it starts; ``require_workers`` makes too few an error.
    ``idle_timeout_s``: after how long without a run a fleet worker ends; ``None``: it waits on (DIST-09).
    ``result_margin_s``: what a worker may take beyond all its attempts before the master gives up on it; 0: for ever.

    Raises:
        ConfigurationError: Two of them contradict each other (DIST-07).
    """

    coordinator: str | CoordinatorFactory
    role: Literal["auto", "master", "worker"] = "auto"
    index: int | None = None
    total: int = 1
    workers: int = 0
    heartbeat_interval_s: float = 5.0
    worker_timeout_s: float = 30.0
    master_timeout_s: float = 60.0
    registration_timeout_s: float = 300.0
    result_margin_s: float = 2700.0
    requeue_limit: int = 3
    minimum_workers: int = 0
    require_workers: bool = False
    master_parallelism: int | None = None
    max_parallelism: int | None = None
    drain_timeout_s: float = 30.0
    finalize_timeout_s: float = 30.0
    redis_poll_s: float = 2.0
    redis_key_life_s: float = 3600.0
    idle_timeout_s: float | None = None
    cleanup: Literal["on_success", "always", "never"] = "on_success"

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, int | float) and value < 0:
                raise ConfigurationError(name, value, "given", "give 0 or more")
        if self.heartbeat_interval_s <= 0 or self.heartbeat_interval_s > self.worker_timeout_s / 2:
            rule = f"it must be above 0 and at most half the worker timeout ({self.worker_timeout_s:g} s)"
            raise ConfigurationError("heartbeat_interval_s", self.heartbeat_interval_s, "given", rule)
        if self.master_timeout_s < 2 * self.worker_timeout_s:
            # The state's owner lease is the worker timeout: a master that is started again waits for its former
            # self, and workers that left meanwhile would be missing.
            rule = f"it must be at least twice the worker timeout ({self.worker_timeout_s:g} s)"
            raise ConfigurationError("master_timeout_s", self.master_timeout_s, "given", rule)
        if self.total < 1 or (self.index is not None and self.index >= self.total):
            raise ConfigurationError("instance", f"{self.index}/{self.total}", "given", "write I/N with 0 <= I < N")
        if self.total > 1 and isinstance(self.coordinator, str) and self.coordinator.startswith("memory:"):
            rule = "name a coordinator that other processes reach; memory: is of this process alone (COORD-C83)"
            raise ConfigurationError("coordinator", self.coordinator, "given", rule)

    @property
    def master_lease_s(self) -> float:
        """How long a master keeps the run without a beat."""
        return 3 * self.heartbeat_interval_s


BEATS_PER_TIMEOUT = 3
"""Heartbeats within one worker timeout when that is shorter than usual."""


def options_from(options: Options, **more: Any) -> DistributedOptions:
    """Return distributed options with what the run's own options say of it."""
    fields: dict[str, Any] = {
        "coordinator": options.coordinator,
        "worker_timeout_s": options.worker_timeout_s,
        "master_timeout_s": options.master_timeout_s,
        "heartbeat_interval_s": min(5.0, options.worker_timeout_s / BEATS_PER_TIMEOUT),
    }
    return DistributedOptions(**{**fields, **more})


def with_workers(options: Options) -> DistributedOptions:
    """Return the options of a master that starts its workers itself and has no slots of its own (DIST-10, DIST-11)."""
    return options_from(options, coordinator="memory:", workers=options.workers)


def parse_instance(text: str) -> tuple[int, int]:
    """Read ``I/N``; returns index and total.

    Raises:
        ConfigurationError: It is not of that form, or the index is outside.
    """
    index, slash, total = text.partition("/")
    if slash and index.isdigit() and total.isdigit() and int(index) < int(total):
        return int(index), int(total)
    raise ConfigurationError(
        "instance", text, "given", "write I/N with 0 <= I < N, for example 0/3 for the master of three"
    )


def role_of(options: DistributedOptions) -> Role:
    """Return what this process is: as told, else the master when its index is 0 or absent (DIST-02)."""
    if options.role != "auto":
        return options.role
    return "worker" if options.index else "master"


def worker_id_of(options: DistributedOptions, random: Random) -> str:
    """Return the id of this process: by its index, else by host and process (DIST-02)."""
    if options.index is not None:
        return f"instance-{options.index}"
    host = "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in platform.node()) or "host"
    return f"{host.lstrip('._-')[:80] or 'host'}-{os.getpid()}-{random.getrandbits(32):08x}"


def shared_run_id(options: DistributedOptions, given: str | None, environ: Mapping[str, str]) -> str | None:
    """Return the run id that all instances agree on (DIST-04).

    ``None``: the master may make one up; a worker takes every run of its program (DIST-09).

    Raises:
        ConfigurationError: Several instances, and nothing that names their run alike.
    """
    if given:
        return given
    for run, attempt in CI_RUN_VARIABLES:
        if environ.get(run):
            number = environ.get(attempt, "") if attempt else ""
            return f"{environ[run]}-{number}" if number else environ[run]
    if options.total > 1:
        raise ConfigurationError(
            "run_id", "missing", "no flag or variable", "give the same --run-id or TOWLINE_RUN_ID on every instance"
        )
    return None
