"""The commands and their flags. Each hands over to the file that does the work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

from towline.cli.flags import DURATION, run_flags, selection_flags, state_flag
from towline.cli.together import together_flags

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from towline.cli.seen import SeenPipeline

F = TypeVar("F", bound="Callable[..., Any]")

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class _Group(click.Group):
    """A group that names the nearest command for a misspelt one (CLI-02)."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from towline.identity import suggestion

            raise click.UsageError(error.message.rstrip(".") + "." + suggestion(args[0], self.commands), ctx) from None


@click.group(cls=_Group, context_settings=CONTEXT)
@click.version_option(message="towline %(version)s", package_name="towline")
def towline() -> None:
    """Pipelines that must finish: plan, run, resume, look.

    TARGET is file.py[:name] or package.module[:name]; the name is `pipeline` unless said.
    """


@click.group(cls=_Group, context_settings=CONTEXT)
@click.version_option(message="towline %(version)s", package_name="towline")
def own() -> None:
    """Run this pipeline, or look at what it would do. `run` is the default."""


target = click.argument("target")


def _both(name: str) -> Callable[[F], F]:
    """Offer a command of ``towline`` with TARGET, and of a pipeline's own ``main()`` without."""

    def add(function: F) -> F:
        import functools

        @functools.wraps(function)
        def with_target(target: str, **given: Any) -> Any:
            from towline.cli.loading import load

            with _stream_of(given):
                return function(load(target), target, **given)

        @functools.wraps(function)
        @click.pass_obj
        def without_target(pipeline: SeenPipeline, /, **given: Any) -> Any:
            with _stream_of(given):
                return function(pipeline, None, **given)

        params = list(getattr(function, "__click_params__", ()))
        for decorated in (with_target, without_target):
            decorated.__dict__["__click_params__"] = list(params)
        towline.command(name, help=function.__doc__)(target_argument(with_target))
        own.command(name, help=function.__doc__)(without_target)
        return function

    return add


def _stream_of(given: dict[str, Any]) -> AbstractContextManager[None]:
    """What a program reads comes alone on standard output, whatever TARGET or a body writes there (CTL-25)."""
    from contextlib import nullcontext

    if not given.get("as_json") and given.get("form", "text") == "text":
        return nullcontext()
    from towline.cli.result_stream import results_apart

    return results_apart()


def target_argument(function: F) -> F:
    """Add TARGET before the flags."""
    return target(function)


@_both("run")
@run_flags
@together_flags
@selection_flags
def run(pipeline: SeenPipeline, target: str | None, **given: Any) -> int:
    """Plan and run. Goes on where an interrupted run stopped."""
    from towline.cli.running import run_pipeline

    return run_pipeline(pipeline, given)


@_both("resume")
@run_flags
@selection_flags
def resume(pipeline: SeenPipeline, target: str | None, **given: Any) -> int:
    """Go on with the earlier plan, whatever it ended with: the same as run --resume."""
    from towline.cli.running import run_pipeline

    if given.pop("fresh"):
        raise click.UsageError("resume and --fresh contradict each other")
    return run_pipeline(pipeline, given | {"resume": True, "fresh": False})


@_both("worker")
@selection_flags
@together_flags
@click.option("--run-id", "run_id", help="The run to work for.")
@click.option("--parallel", "parallel", type=click.IntRange(min=1), help="Bodies that run at once here.")
def worker(pipeline: SeenPipeline, target: str | None, **given: Any) -> int:
    """Work for a master elsewhere: claim its tasks, run them, publish what came of them."""
    from towline.cli.running import serve_as_worker

    return serve_as_worker(pipeline, given)


@_both("plan")
@click.option(
    "--format", "form", type=click.Choice(["text", "json", "mermaid", "dot"]), default="text", help="How to write it."
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option("--resume", "resume", is_flag=True, help="What a resume would do.")
@click.option("--fresh", "fresh", is_flag=True, help="What a fresh run would do.")
@selection_flags
def plan(pipeline: SeenPipeline, target: str | None, form: str, as_json: bool, **given: Any) -> int:
    """Show tasks, tiers, skips and estimates. Runs nothing and writes nothing."""
    from towline.cli.running import show_plan

    return show_plan(pipeline, "json" if as_json else form, given)


@_both("check")
@click.option("--json", "as_json", is_flag=True, help="List the problems as JSON.")
@selection_flags
def check(pipeline: SeenPipeline, target: str | None, as_json: bool, **given: Any) -> int:
    """Report everything that can be refused before running. Exit code 0 or 2."""
    from towline.cli.running import check_pipeline

    return check_pipeline(pipeline, given, as_json=as_json)


@towline.command("runs")
@state_flag
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
@click.option("--limit", type=int, default=20, show_default=True, help="Most runs to list.")
def runs(state: str | None, pipeline: str | None, as_json: bool, limit: int) -> int:
    """List the runs of the pipelines in this folder, newest first."""
    from towline.cli.history import list_runs
    from towline.cli.states import Where

    return list_runs(Where(state, pipeline), as_json=as_json, limit=limit)


@towline.command("show")
@click.argument("run", default="latest")
@click.option("--task", "task", help="One task, with its log.")
@state_flag
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
def show(run: str, task: str | None, state: str | None, pipeline: str | None, as_json: bool) -> int:
    """Show one RUN (default: the latest): how it ended, task by task."""
    from towline.cli.history import show_run
    from towline.cli.states import Where

    return show_run(run, task, Where(state, pipeline), as_json=as_json)


@towline.command("diff")
@click.argument("before")
@click.argument("after")
@state_flag
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
def diff(before: str, after: str, state: str | None, pipeline: str | None, as_json: bool) -> int:
    """Compare two runs: tasks that came, went, changed state or became slower."""
    from towline.cli.history import diff_runs
    from towline.cli.states import Where

    return diff_runs(before, after, Where(state, pipeline), as_json=as_json)


@towline.command("why")
@click.argument("task")
@state_flag
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
def why(task: str, state: str | None, pipeline: str | None, as_json: bool) -> int:
    """Say what TASK waits for, or why it ran, was skipped, reused or failed."""
    from towline.cli.states import Where
    from towline.cli.why import explain

    return explain(task, Where(state, pipeline), as_json=as_json)


@towline.command("artifacts")
@click.argument("run", default="latest")
@click.argument("name", required=False)
@click.option("--into", default=".", metavar="FOLDER", show_default=True, help="Where NAME is restored.")
@state_flag
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
def artifacts(run: str, name: str | None, into: str, state: str | None, pipeline: str | None, as_json: bool) -> int:
    """List the artifacts of RUN (default: the latest), or fetch the one called NAME or TASK/NAME."""
    from towline.cli.artifacts import list_artifacts
    from towline.cli.states import Where

    return list_artifacts(run, name, into, Where(state, pipeline), as_json=as_json)


@towline.command("cancel")
@click.argument("state")
@click.option("--run-id", "run_id", help="Only if this run is the one that runs there.")
@click.option("--pipeline", "pipeline", metavar="NAME", help="Only this pipeline of those on the server.")
@click.option("--task", "task", hidden=True)
@click.option("--wait", "wait_s", type=DURATION, default="120", show_default=True, help="How long to wait for its end.")
def cancel(state: str, run_id: str | None, pipeline: str | None, task: str | None, wait_s: float) -> int:
    """Stop the run that owns STATE; returns when it has ended.

    STATE is .towline/PIPELINE in the folder where the run was started, or redis://HOST:PORT where its state lies.
    """
    from towline.cli.cancel import cancel_run

    return cancel_run(state, pipeline, run_id, task, wait_s=wait_s)


@towline.command("doctor")
@click.argument("target", required=False)
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
def doctor(target: str | None, as_json: bool) -> int:
    """Show settings with where they come from, and what is installed."""
    from towline.cli.doctor import examine

    return examine(target, as_json=as_json)


@towline.group("offload", cls=_Group)
def offload() -> None:
    """Serve array kernels to pipelines and programs elsewhere."""


@offload.command("worker", add_help_option=False, context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def offload_worker(arguments: tuple[str, ...]) -> int:
    """Serve the kernels of MODULE (file.py or package.module); --help lists the flags."""
    from towline.cli.kernels import serve_kernels

    return serve_kernels(arguments)
