"""From TARGET to a pipeline (CLI-01, MOD-24 to 28)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from towline.cli.seen import SeenPipeline


def load(target: str) -> SeenPipeline:
    """Load the pipeline that a TARGET names.

    Raises:
        TargetLoadError: It cannot be found or loaded, or there is no pipeline, or several.
        TowlineError: What it declares is wrong. That text names the line; a traceback would only bury it.
    """
    from towline.errors.declaration import TargetLoadError
    from towline.errors.root import TowlineError
    from towline.modules.target import load_target, parse_target, refuse_other_than_pipeline

    try:
        parsed = parse_target(target)
        found = load_target(parsed)
        refuse_other_than_pipeline(found, parsed)
        return cast("SeenPipeline", found)
    except TargetLoadError as error:
        if isinstance(error.__cause__, TowlineError):
            raise error.__cause__ from None
        raise
