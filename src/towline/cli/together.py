"""``run`` as one of several processes, and ``worker``: from flags to a role and an exit code (DIST-01 to 04)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from towline.cli.failing import say
from towline.errors.configuration import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from towline.cli.seen import SeenPipeline
    from towline.distributed.options import DistributedOptions
    from towline.execution.options import Options
    from towline.execution.run_request import RunRequest

F = TypeVar("F", bound="Callable[..., Any]")


def together_flags(function: F) -> F:
    """How this process takes part in a run of several."""
    coordinator = click.option("--coordinator", metavar="URL", help="What master and workers share: redis://HOST:PORT.")
    instance = click.option("--instance", metavar="I/N", help="Which of N processes this is; 0 is the master.")
    return coordinator(instance(function))


def distributed_of(
    given: Mapping[str, Any], environ: Mapping[str, str], options: Options, *, role: str = "auto"
) -> DistributedOptions | None:
    """Return the options of distributed mode; ``None`` when neither a coordinator nor workers are asked for (DIST-01).

    Raises:
        ConfigurationError: They contradict each other.
    """
    from towline.distributed.options import options_from, parse_instance, with_workers

    named = given.get("coordinator") or environ.get("TOWLINE_COORDINATOR")
    if named and options.coordinator is not None and not isinstance(options.coordinator, str):
        advice = "the program has a coordinator of its own: leave the flag and TOWLINE_COORDINATOR out (COORD-C87)"
        raise ConfigurationError("coordinator", named.rpartition("@")[2], "given", advice)
    coordinator = named or options.coordinator
    instance = given.get("instance") or environ.get("TOWLINE_INSTANCE")
    if options.workers and role != "worker":
        for what, value in (("coordinator", coordinator), ("instance", instance)):
            if value:
                advice = f"workers of this machine meet at the master itself: leave out the {what}, or the workers"
                raise ConfigurationError("workers", options.workers, f"given beside a {what}", advice)  # DIST-13
        return with_workers(options)
    if not coordinator and options.discovery is not None and role == "worker":
        coordinator = _discovered(options)
    if not coordinator:
        if instance or role == "worker":
            advice = "name it with --coordinator URL, or with the variable TOWLINE_COORDINATOR"
            raise ConfigurationError("coordinator", None, "neither flag nor variable", advice)
        return None
    index, total = parse_instance(instance) if instance else (None, 1)
    return options_from(options, coordinator=coordinator, role=role, index=index, total=total)


def _discovered(options: Options) -> Any:
    from towline.distributed.discovery import DiscoveredCoordinators
    from towline.distributed.options import DistributedOptions

    usual = DistributedOptions(coordinator="memory:")
    return DiscoveredCoordinators(
        options.discovery,
        limit_s=usual.registration_timeout_s,
        poll_s=usual.redis_poll_s,
        lost_after_s=options.master_timeout_s,
    )


def take_part(
    request: RunRequest, given: Mapping[str, Any], environ: Mapping[str, str], *, role: str = "auto"
) -> RunRequest:
    """Return the request with its part in a run of several, and the run id that all share."""
    from towline.distributed.options import shared_run_id

    distributed = distributed_of(given, environ, request.options, role=role)
    if distributed is None:
        return request
    # Workers of this machine are told the run id: it need not be the same anywhere else.
    run_id = request.run_id if distributed.workers else shared_run_id(distributed, request.run_id, environ)
    return msgspec.structs.replace(request, distributed=distributed, run_id=run_id)


def is_worker(request: RunRequest) -> bool:
    """Whether this process works for a master elsewhere."""
    from towline.distributed.options import role_of

    return request.distributed is not None and role_of(request.distributed) == "worker"


def work(pipeline: SeenPipeline, request: RunRequest) -> int:
    """Work for one run until it has no more, or for all runs of the program (DIST-09); returns the exit code."""
    from towline.execution.own_loop import run_on_own_loop

    _show_warnings()
    if request.run_id is None:
        say(f"worker for every run of {pipeline.name}; ends on a signal")
        return run_on_own_loop(pipeline.work_for_all(request))
    say(f"worker for run {request.run_id}")
    return run_on_own_loop(pipeline.work_for(request, request.run_id))


def _show_warnings() -> None:
    """Write what the library warns of to standard error: a worker has no view that would show it.

    Nobody else would: a run listens at the root logger, which keeps Python from writing what no handler takes.
    """
    import logging

    class Shown(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            say(f"warning: {record.getMessage()}")

    logging.getLogger("towline").addHandler(Shown(logging.WARNING))
