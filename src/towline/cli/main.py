"""Entry points of the command line; everything heavy is imported by the command that needs it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from towline.cli.seen import SeenPipeline


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Be ``towline``; ends by ``SystemExit`` with the code of what was done (DESIGN section 2)."""
    try:
        from towline.cli.commands import towline

        _run(towline, "towline", argv, None)
    except KeyboardInterrupt:  # while modules were still being imported: a run has its own answer to Ctrl-C
        sys.stderr.write("towline: interrupted before anything ran.\n")
        raise SystemExit(130) from None


def pipeline_main(pipeline: SeenPipeline, argv: Sequence[str] | None = None) -> NoReturn:
    """Be the command line of one pipeline: the same commands without a TARGET, ``run`` by default (CLI-07)."""
    from towline.cli.commands import own

    given = list(sys.argv[1:] if argv is None else argv)
    if not given or (given[0].startswith("-") and given[0] not in ("--help", "--version")):
        given.insert(0, "run")
    _run(own, sys.argv[0] or "pipeline", given, pipeline)


def _run(command: object, name: str, argv: Sequence[str] | None, pipeline: SeenPipeline | None) -> NoReturn:
    """Carry out a command; every error becomes one message and an exit code (CLI-06, CLI-12)."""
    import click

    from towline.cli.failing import exit_code_of, say, usage_text

    assert isinstance(command, click.Group)
    _open_closed_streams()
    given = list(sys.argv[1:] if argv is None else argv)
    try:
        _refuse_surrogates(given)
        code = command.main(args=given, prog_name=name, standalone_mode=False, obj=pipeline)
    except click.exceptions.Abort:  # what click makes of a Ctrl-C that no run has answered
        code = exit_code_of(KeyboardInterrupt())
    except click.UsageError as error:
        say(usage_text(error))
        code = error.exit_code
    except click.ClickException as error:
        say(f"towline: {error.format_message()}.")
        code = error.exit_code
    except BaseException as error:  # the last handler: a message and a code for whatever came
        if isinstance(error, SystemExit):
            raise
        code = exit_code_of(error)
    _flush_output()
    raise SystemExit(code if isinstance(code, int) else 0)


def _open_closed_streams() -> None:
    """Put something that swallows all in place of streams that the caller closed (``>&-``).

    They are ``None`` in Python; and the next file to be opened, a plan for one, would get their number, and with
    it whatever a program that a body starts writes there.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - stays for the process


def _flush_output() -> None:
    """Flush while a reader that has left (``| head``), or a full device, can be told from a failure (REP-13)."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        from towline.views.streams import silence

        silence(sys.stdout)


def _refuse_surrogates(argv: Sequence[str]) -> None:
    """Refuse an argument that is no UTF-8: no name can hold it (CLI-14)."""
    import click

    for argument in argv:
        try:
            argument.encode("utf-8")
        except UnicodeEncodeError:
            shown = argument.encode("utf-8", "backslashreplace").decode()
            raise click.UsageError(f"the argument {shown} is no UTF-8 text") from None
