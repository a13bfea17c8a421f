"""One pipeline, run in several ways: every behaviour of the engine holds in each of them (TEST-11).

``local`` is a plain run; in ``strict`` every input is a decoded copy; in ``process`` every body has a process of
its own, for which the pipeline must be a global of a file; in ``distributed`` a master does all tasks through a
coordinator in memory, so that each task is also ``queued``.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import msgspec

from towline.execution.run_request import RunRequest
from towline.testing.clocks import TestClock
from towline.testing.virtual_loop import VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from towline.clock import Clock
    from towline.events.records import Event
    from towline.execution.report import RunReport
    from towline.modules.kinds import AnyModule
    from towline.modules.outcomes import Outcome
    from towline.pipeline.pipeline import Pipeline

ModeName: TypeAlias = Literal["local", "strict", "process", "distributed"]


class SeenRun:
    """A run that has ended, with everything that was seen of it."""

    def __init__(self, report: RunReport, cause: BaseException | None, events: Sequence[Event]) -> None:
        self.report, self.cause, self.events = report, cause, events

    @property
    def status(self) -> str:
        """How the run ended."""
        return self.report.status

    @property
    def states(self) -> dict[str, str]:
        """Final state by task id, with the reason code where there is one: ``skipped/condition``."""
        return {task.id: f"{task.state}/{task.reason}" if task.reason else task.state for task in self.report.tasks}

    @property
    def transitions(self) -> list[tuple[str, str]]:
        """(task id, new state) in the order of the event log, without ``queued``, which only some modes have."""
        moves = ((event.task or "", event.data["to"]) for event in self.of_kind("task_state"))
        return [(task, state) for task, state in moves if state != "queued"]

    def of_kind(self, *kinds: str) -> Iterator[Event]:
        """Give the events of some kinds, in order."""
        return (event for event in self.events if event.kind in kinds)

    def outcome(self, module: AnyModule) -> Outcome[Any]:
        """How a module of one task ended."""
        found: Any = self.report.outcome_of(module)
        return found  # type: ignore[no-any-return]

    def value(self, module: AnyModule) -> Any:
        """What a module gave; of an expanded one, the list."""
        found: Any = self.report.outcome_of(module)
        return [one.value for one in found] if isinstance(found, list) else found.value


async def run_in_mode(
    pipeline: Pipeline[Any], mode: ModeName = "local", *, clock: Clock | None = None, **request: Any
) -> SeenRun:
    """Run a pipeline in a mode and return what was seen; a failed run is returned, not raised.

    State is kept in memory unless the options name another place. ``clock``: on a virtual loop that loop's by
    default. ``request``: fields of ``RunRequest``; ``options`` are the pipeline's own by default.

    Raises:
        TowlineError: Nothing ran, or the state was lost.
    """
    options = request.pop("options", pipeline.program.options)
    changes: dict[str, Any] = {"strict_values": True} if mode == "strict" else {}
    if options.state is None:
        changes["state"] = "memory:"
    if clock is None and isinstance(asyncio.get_running_loop(), VirtualLoop):
        clock = TestClock.of_running_loop()
    events: list[Event] = []
    given = RunRequest(
        options=msgspec.structs.replace(options, **changes),
        isolate_all=mode == "process",
        distributed=_together() if mode == "distributed" else None,
        watchers=(events.extend, *request.pop("watchers", ())),
        **request,
    )
    report, cause = await pipeline.run_for(given, clock)
    return SeenRun(report, cause, events)


def _together() -> Any:
    """A master that does all tasks itself, through a coordinator in memory (DIST-30)."""
    from towline.coordination.memory import MemoryCoordinators
    from towline.distributed.options import DistributedOptions

    return DistributedOptions(coordinator=MemoryCoordinators(), registration_timeout_s=60.0)


def in_modes(*modes: ModeName) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Run a test once per mode, which it takes as ``mode``; without arguments, in all of them.

    What the test returns, such as an order of events, has to be the same in each.

    Raises:
        ValueError: There is no such mode.
    """
    known: tuple[ModeName, ...] = get_args(ModeName)
    chosen = modes or known
    for mode in chosen:
        if mode not in known:
            raise ValueError(f"there is no mode {mode!r}: {', '.join(known)}")

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        async def run_all(*args: Any, **kwargs: Any) -> None:
            seen: list[Any] = []
            for mode in chosen:
                try:
                    found = test(*args, mode=mode, **kwargs)
                    seen.append(await found if inspect.isawaitable(found) else found)
                except BaseException as error:
                    error.add_note(f"in mode {mode}")
                    raise
                assert seen[-1] == seen[0], f"{mode} differs from {chosen[0]}:\n{seen[-1]}\n{seen[0]}"

        functools.update_wrapper(run_all, test)
        delattr(run_all, "__wrapped__")  # pytest would read the parameters of the test itself, `mode` among them
        signature = inspect.signature(test)
        shown = [parameter for name, parameter in signature.parameters.items() if name != "mode"]
        run_all.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
        return run_all

    return decorate
