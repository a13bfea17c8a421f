"""Entry points of the command line; everything heavy is imported by the command that needs it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from towline.cli.seen import SeenPipeline


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Be ``towline``; ends by ``SystemExit`` with the code of what was done (DESIGN section 2)."""
    from towline.cli.commands import towline

    _run(towline, "towline", argv, None)


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

    from towline.cli.failing import exit_code_of

    assert isinstance(command, click.Group)
    given = list(sys.argv[1:] if argv is None else argv)
    try:
        _refuse_surrogates(given)
        code = command.main(args=given, prog_name=name, standalone_mode=False, obj=pipeline)
    except click.exceptions.Abort:
        code = 130
    except click.ClickException as error:
        error.show(file=sys.stderr)
        code = error.exit_code
    except BaseException as error:  # noqa: BLE001 - the last handler: a message and a code for whatever came
        if isinstance(error, SystemExit):
            raise
        code = exit_code_of(error)
    raise SystemExit(code if isinstance(code, int) else 0)


def _refuse_surrogates(argv: Sequence[str]) -> None:
    """Refuse an argument that is no UTF-8: no name can hold it (CLI-14)."""
    import click

    for argument in argv:
        try:
            argument.encode("utf-8")
        except UnicodeEncodeError:
            shown = argument.encode("utf-8", "backslashreplace").decode()
            raise click.UsageError(f"the argument {shown} is no UTF-8 text") from None
