"""Results on standard output: what a command was called for, so that it must not fail unseen (CLI-12)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from towline.cli.result_stream import result_stream
from towline.views.streams import harmless, write_or_fail

if TYPE_CHECKING:
    from collections.abc import Sequence


def write_result(lines: Sequence[str]) -> None:
    """Write lines; control characters in them are shown as escapes.

    Raises:
        click.ClickException: Standard output cannot be written. A closed one (``| head``) is no error.
    """
    _write("".join(harmless(line) + "\n" for line in lines))


def write_json(value: Any) -> None:
    """Write one JSON document.

    Raises:
        click.ClickException: Standard output cannot be written.
    """
    import msgspec

    _write(msgspec.json.encode(value, enc_hook=repr).decode() + "\n")


def _write(text: str) -> None:
    try:
        write_or_fail(result_stream(), text)
    except OSError as error:
        raise click.ClickException(f"standard output cannot be written: {error.strerror or error}") from error
