"""The cache of a node, for a program that uses it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from towline.execution.cached import CachedRuns
    from towline.pipeline.run_node import RunNode


def open_cache(node: RunNode) -> CachedRuns | None:
    """Open the cache below the workdir; ``None`` when no module uses it, or none may be (CACHE-09, CMD-14)."""
    facts, options = node.facts, node.facts.request.options
    wanted = any(spec.settings.cache is not None for spec in facts.built.specs.values())
    if not wanted or options.no_cache or options.dry_commands:
        return None
    from towline.execution.cache import DirectoryCacheStore
    from towline.execution.cached import CachedRuns

    return CachedRuns(
        store=DirectoryCacheStore(node.workdir / ".towline" / "cache", clock=facts.clock),
        artifacts=node.artifacts,
        built=facts.built,
        outcomes=node.values,
        root=facts.target.root if facts.target else None,
        log=node.output.log,
        clock=facts.clock,
        run_id=facts.run_id,
    )
