"""From TARGET to a pipeline (CLI-01, MOD-24 to 28)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from towline.cli.seen import SeenPipeline


def load(target: str) -> SeenPipeline:
    """Load the pipeline that a TARGET names.

    Raises:
        TargetLoadError: It cannot be found or loaded, or there is no pipeline, or several.
    """
    from towline.modules.target import load_target, parse_target

    return cast("SeenPipeline", load_target(parse_target(target)))
