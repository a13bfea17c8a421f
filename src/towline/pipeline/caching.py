"""The cache of a node, for a program that uses it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from towline.artifacts.store import ArtifactStore
    from towline.clock import Clock
    from towline.execution.cached import CachedRuns
    from towline.execution.options import Options
    from towline.execution.values import Values
    from towline.modules.doors import Attempt
    from towline.modules.target import TargetRef
    from towline.planning.built import BuiltPlan


def open_cache(
    built: BuiltPlan,
    options: Options,
    target: TargetRef | None,
    *,
    workdir: Path,
    artifacts: ArtifactStore,
    outcomes: Values,
    log: Callable[[Attempt, str, str], None],
    clock: Clock,
    run_id: str,
) -> CachedRuns | None:
    """Open the cache below the workdir; ``None`` when no module uses it, or none may be (CACHE-09, CMD-14)."""
    wanted = any(spec.settings.cache is not None for spec in built.specs.values())
    if not wanted or options.no_cache or options.dry_commands:
        return None
    from towline.execution.cache import DirectoryCacheStore
    from towline.execution.cached import CachedRuns

    return CachedRuns(
        store=DirectoryCacheStore(workdir / ".towline" / "cache", clock=clock),
        artifacts=artifacts,
        built=built,
        outcomes=outcomes,
        root=target.root if target else None,
        log=log,
        clock=clock,
        run_id=run_id,
    )
