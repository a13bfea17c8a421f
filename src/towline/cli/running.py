"""``run``, ``plan`` and ``check``: from flags to a request, a console and an exit code."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from towline.cli.failing import say
from towline.cli.flags import refuse_contradictions
from towline.cli.going_on import next_steps
from towline.cli.params import own_params_of, params_of
from towline.cli.result_stream import result_stream
from towline.cli.results import write_json, write_result
from towline.cli.settings import choose, options_of, project_table, unknown_variables
from towline.cli.together import is_worker, take_part, work
from towline.errors.configuration import ConfigurationError
from towline.execution.own_loop import run_on_own_loop
from towline.execution.run_request import RunRequest
from towline.identity.names import NODE_ID
from towline.planning.selection import split_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from towline.cli.seen import SeenPipeline
    from towline.execution.report import RunReport
    from towline.views.consoles import Console

TICK_S = 1.0

FLAG_OF = {
    "parallel": "parallel",
    "workers": "workers",
    "keep_going": "keep-going",
    "module_timeout": "module-timeout",
    "state": "state",
    "durability": "durability",
    "schedule": "schedule",
    "strict_values": "strict-values",
    "dry_run": "dry-run",
    "no_cache": "no-cache",
}


def request_of(pipeline: SeenPipeline, given: dict[str, Any]) -> RunRequest:
    """Turn flags into the request of a whole run, with its parameters.

    Raises:
        ConfigurationError, DeclarationError, click.UsageError: A flag, variable or table entry is wrong.
    """
    return _with_params(pipeline, given, _request_without_params(pipeline, given), params_of)


def _with_params(
    pipeline: SeenPipeline, given: dict[str, Any], request: RunRequest, reading: Callable[..., Any]
) -> RunRequest:
    params = reading(pipeline.name, pipeline.program.params_type, given.get("params", ()), os.environ)
    return msgspec.structs.replace(request, params=params)


def _request_without_params(pipeline: SeenPipeline, given: dict[str, Any]) -> RunRequest:
    """Turn flags into a request, with the settings that win over the options in code."""
    refuse_contradictions(given)
    program = pipeline.program
    start = Path(program.file).resolve().parent if program.file else Path.cwd()
    table, table_file = project_table(start)
    flags = {name: given.get(key) for key, name in FLAG_OF.items()}
    capabilities = [*given.get("capabilities", ()), os.environ.get("TOWLINE_CAPABILITIES", "")]
    capabilities.append(os.environ.get("TOWLINE_CAPABILITY", ""))
    capabilities += table.get("capabilities", [])
    chosen = choose(flags, os.environ, table, table_file, program.options)
    for warning in unknown_variables(os.environ):
        say(f"warning: {warning}")
    return RunRequest(
        options=options_of(chosen, program.options),
        earlier="resume" if given.get("resume") else "fresh" if given.get("fresh") else None,
        failed="retry" if given.get("retry_failed") else "keep" if given.get("keep_failed") else None,
        modules=_names(given, "modules", "TOWLINE_MODULE"),
        skip=_names(given, "skip", "TOWLINE_SKIP"),
        categories=_names(given, "categories", "TOWLINE_CATEGORY"),
        phases=_names(given, "phases", "TOWLINE_PHASE"),
        run_id=_run_id(given.get("run_id")),
        report=given.get("report"),
        capabilities=split_names(capabilities),
        by_main=True,
    )


def _names(given: dict[str, Any], key: str, variable: str) -> tuple[str, ...]:
    """Names from a flag that repeats and takes commas, or from its variable (CLI-03, CLI-09)."""
    return split_names(given.get(key) or (os.environ.get(variable, ""),))


def _run_id(flag: str | None) -> str | None:
    """The run id of the flag, else of its variable; a flag that is there but empty is a script's mistake."""
    text = flag if flag is not None else os.environ.get("TOWLINE_RUN_ID") or None
    if text is not None and not NODE_ID.match(text):
        advice = (
            "a run id has 1 to 128 letters, digits, dots, dashes and underscores, and begins with a letter or digit"
        )
        raise ConfigurationError("--run-id", text or "empty", "given", advice)
    return text


def run_pipeline(pipeline: SeenPipeline, given: dict[str, Any]) -> int:
    """Run, show, and return the exit code of the run."""
    from towline.views.consoles import console_for
    from towline.views.step_summary import append_summary

    request = take_part(_request_without_params(pipeline, given), given, os.environ)
    if is_worker(request):
        return work(pipeline, _with_params(pipeline, given, request, own_params_of))
    request = _with_params(pipeline, given, request, params_of)
    console = console_for(
        result_stream(),
        sys.stderr,
        os.environ,
        as_json=given.get("as_json", False),
        plain=given.get("plain", False),
        defuse=request.options.ci_commands == "defuse",
    )
    request = msgspec.structs.replace(
        request,
        watchers=(console.take,),
        greet=console.greet,
        look=console.look,
        tell_secret=console.mask,
        before_exit=console.close,
    )
    try:
        report = run_on_own_loop(_run_and_tick(pipeline, request, console))
    finally:
        console.close()
    keeps_state = not request.options.dry_commands and request.options.state != "memory:"
    console.finish(report, next_steps(report, pipeline.program.resume, keeps_state=keeps_state))
    trouble = append_summary(report, os.environ)
    if trouble is not None:
        say(f"warning: {trouble}")
    leave_if_abandoned(report)
    return report.exit_code


async def _run_and_tick(pipeline: SeenPipeline, request: RunRequest, console: Console) -> RunReport:
    """Run, and let the console show meanwhile what changes by time alone."""
    ticking = asyncio.create_task(_tick(console))
    try:
        report, _ = await pipeline.run_for(request)
    finally:
        ticking.cancel()
    return report


async def _tick(console: Console) -> None:
    while True:
        await asyncio.sleep(TICK_S)
        console.tick()


def serve_as_worker(pipeline: SeenPipeline, given: dict[str, Any]) -> int:
    """Be a worker of the run that was named; returns the exit code."""
    request = take_part(_request_without_params(pipeline, given), given, os.environ, role="worker")
    return work(pipeline, _with_params(pipeline, given, request, own_params_of))


def leave_if_abandoned(report: RunReport) -> None:
    """Leave without joining a body that would not end (RUN-26)."""
    if any(task.abandoned for task in report.tasks):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(report.exit_code)


def show_plan(pipeline: SeenPipeline, form: str, given: dict[str, Any]) -> int:
    """Write the plan to standard output."""
    from towline.views.streams import width_of

    request = take_part(request_of(pipeline, given), given, os.environ)
    plan = asyncio.run(pipeline.plan_for(request))
    text = plan.to_text(form, width=width_of(sys.stdout, os.environ))  # type: ignore[arg-type]
    write_result(text.rstrip("\n").split("\n"))
    return 0


def check_pipeline(pipeline: SeenPipeline, given: dict[str, Any], *, as_json: bool) -> int:
    """Write every problem that can be found before running; 0 or 2."""
    from towline.errors.root import TowlineError

    warnings: list[str] = []
    try:
        problems, warnings = pipeline.check_for(take_part(request_of(pipeline, given), given, os.environ))
    except TowlineError as error:
        problems = [str(error)]
    if as_json:
        write_json({"problems": problems, "warnings": warnings})
        return 2 if problems else 0
    for warning in warnings:
        say(f"warning: {warning}")
    for problem in problems:
        say(problem)
    if not problems:
        write_result([f"{pipeline.name}: no problems found"])
    return 2 if problems else 0
