"""What one call asks of a run, beyond what the pipeline declares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from towline.events.records import Event
from towline.execution.look import RunLook
from towline.execution.options import Options


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One call of ``run`` or ``plan``.

    ``params``: a record of the declared type; of a worker also its own ones by name, or nothing (DIST-08).
    ``earlier``: what to do with an earlier plan; ``None`` follows the pipeline's ``resume`` mode.
    ``failed``: whether a resume tries failed tasks again; ``None`` is its default table (PLAN section 4.3).
    ``modules``, ``skip``, ``categories``, ``phases``: the selection (PLAN-48). ``workdir``: where bodies
    run and patterns start; ``None`` is the current directory.
    ``capabilities``: what this machine has, as its operator says. ``greet`` is told what the start does with
    an earlier plan, and why, before anything runs. ``by_main``: the process belongs to this run: it handles
    signals and may leave by ``os._exit``. ``look`` is given the door to ask the run what tasks wait for, before
    its first event; ``tell_secret`` every value that is to be masked, in any thread; ``before_exit`` is called
    when the process is about to leave by ``os._exit``, in any thread.
    """

    params: Any = None
    options: Options = Options()
    earlier: Literal["resume", "fresh"] | None = None
    failed: Literal["retry", "keep"] | None = None
    modules: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    run_id: str | None = None
    report: str | None = None
    workdir: Path | None = None
    capabilities: tuple[str, ...] = ()
    by_main: bool = False
    isolate_all: bool = False
    """Every body in a process of its own, whatever its module says: how the parity of the modes is tested (RUN-03)."""
    distributed: Any = None
    """``DistributedOptions``: take part in a run of several processes (DIST-01)."""
    greet: Callable[[str], None] | None = None
    watchers: tuple[Callable[[Sequence[Event]], None], ...] = ()
    look: Callable[[RunLook], None] | None = None
    tell_secret: Callable[[str], None] | None = None
    before_exit: Callable[[], None] | None = None

    @property
    def values_travel(self) -> bool:
        """Whether every result leaves its process, so that one that cannot be encoded is refused (SER-02)."""
        return self.options.strict_values or self.is_spread

    @property
    def is_spread(self) -> bool:
        """Whether tasks go to workers, each to one that meets its requirement (DIST-28)."""
        options = self.options
        return self.distributed is not None or options.coordinator is not None or options.workers > 0
