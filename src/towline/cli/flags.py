"""Flags that several commands share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

from towline.cli.settings import seconds

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")


class _Duration(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.4 alone
    """Seconds, or ``5m``, or ``1h30m``."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return seconds(value)
        except ValueError as error:
            self.fail(f"{value!r} is not {error}", param, ctx)


DURATION = _Duration()


def _apply(function: F, options: list[Callable[[F], F]]) -> F:
    for option in reversed(options):
        function = option(function)
    return function


def selection_flags(function: F) -> F:
    """What the run is about: modules, parameters, state."""
    return _apply(
        function,
        [
            click.option(
                "--module", "-m", "modules", multiple=True, help="Only this module or task, and what it needs."
            ),
            click.option("--skip", "skip", multiple=True, help="Leave out this module or task."),
            click.option("--category", "categories", multiple=True, help="Only this category, and what it needs."),
            click.option("--phase", "phases", multiple=True, help="Only this phase, and what it needs."),
            click.option("--param", "-p", "params", multiple=True, metavar="K=V", help="A parameter of the pipeline."),
            click.option("--state", metavar="URL", help="Where the plan lies. Default: .towline/<pipeline>."),
            click.option(
                "--capability", "capabilities", multiple=True, help="Something this machine has, for requires=."
            ),
            click.option(
                "--no-cache", "no_cache", is_flag=True, default=None, help="Neither read nor write the cache."
            ),
        ],
    )


def run_flags(function: F) -> F:
    """How the run is done and shown."""
    return _apply(
        function,
        [
            click.option(
                "--resume",
                "resume",
                is_flag=True,
                envvar="TOWLINE_RESUME",
                help="Go on with the earlier plan, whatever it ended with.",
            ),
            click.option(
                "--fresh",
                "fresh",
                is_flag=True,
                envvar="TOWLINE_FRESH",
                help="Drop the earlier plan, cursors and results; start anew.",
            ),
            click.option(
                "--retry-failed",
                "retry_failed",
                is_flag=True,
                envvar="TOWLINE_RETRY_FAILED",
                help="On a resume, run every failed task again.",
            ),
            click.option(
                "--keep-failed",
                "keep_failed",
                is_flag=True,
                envvar="TOWLINE_KEEP_FAILED",
                help="On a resume, leave failed tasks failed.",
            ),
            click.option(
                "--keep-going",
                "keep_going",
                is_flag=True,
                default=None,
                help="After a failure, run what does not depend on it.",
            ),
            click.option(
                "--parallel", "parallel", type=click.IntRange(min=1), help="Bodies that run at once, in each process."
            ),
            click.option(
                "--workers",
                "workers",
                type=click.IntRange(min=0),
                metavar="N",
                help="Start N worker processes on this machine, which do the tasks.",
            ),
            click.option("--module-timeout", "module_timeout", type=DURATION, help="Default timeout of a module."),
            click.option("--run-id", "run_id", help="The name of this run; generated unless given."),
            click.option("--durability", type=click.Choice(["process", "power"]), help="What the plan survives."),
            click.option("--schedule", type=click.Choice(["eager", "tiers"]), help="When a task may start."),
            click.option(
                "--strict-values",
                "strict_values",
                is_flag=True,
                default=None,
                help="Decode inputs anew for each reader.",
            ),
            click.option(
                "--dry-run",
                "dry_run",
                is_flag=True,
                default=None,
                help="Run bodies, but none of their commands; keep nothing.",
            ),
            click.option(
                "--json", "as_json", is_flag=True, envvar="TOWLINE_JSON", help="Every event as a line of JSON."
            ),
            click.option("--plain", is_flag=True, envvar="TOWLINE_PLAIN", help="Plain lines, no live view."),
            click.option("--report", metavar="PATH", envvar="TOWLINE_REPORT", help="Also write the report here."),
        ],
    )


def state_flag(function: F) -> F:
    """Which states to look into."""
    help_text = "A state folder, or redis://HOST:PORT for why and artifacts. Default: every pipeline below .towline."
    return _apply(
        function,
        [
            click.option("--state", metavar="FOLDER|URL", help=help_text),
            click.option("--pipeline", metavar="NAME", help="Only this pipeline of those that lie there."),
        ],
    )


def refuse_contradictions(given: dict[str, Any]) -> None:
    """Refuse flags that contradict each other, naming both (CLI-05)."""
    pairs = (
        ("resume", "fresh"),
        ("retry_failed", "keep_failed"),
        ("as_json", "plain"),
        ("workers", "coordinator"),
        ("workers", "instance"),
    )
    for one, other in pairs:
        if given.get(one) and given.get(other):
            names = [f"--{name.removeprefix('as_').replace('_', '-')}" for name in (one, other)]
            raise click.UsageError(f"{names[0]} and {names[1]} contradict each other: give one of them")
