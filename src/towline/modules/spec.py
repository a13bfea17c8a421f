"""What a declared module is to the engine: one record for both forms (MOD-01)."""

# ruff: noqa: TC004 - none of these records is ever decoded, so their annotations need no imports at start-up.

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from towline.modules.capabilities import Requirement
    from towline.modules.conditions import ConditionLike
    from towline.modules.retry import Retry


class SourceRef(msgspec.Struct, frozen=True):
    """Where something was declared, for error texts: ``file:line``."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class ModuleRef(msgspec.Struct, frozen=True):
    """A dependency on one module, by name; ``spec`` is what brings it along."""

    name: str
    spec: ModuleSpec

    def __repr__(self) -> str:  # without the spec: a chain of modules would be printed to its end
        return f"ModuleRef({self.name!r})"


class SelectorRef(msgspec.Struct, frozen=True):
    """A dependency on the planned modules with a tag or category; adds none (MOD-16)."""

    kind: Literal["tag", "category"]
    value: str
    result_type: Any = object


class Edge(msgspec.Struct, frozen=True, kw_only=True):
    """One declared dependency. ``param``: the parameter or field that receives it; ``same_key``: MOD-19."""

    to: ModuleRef | SelectorRef
    use: Literal["value", "order", "optional", "outcome"]
    param: str | None = None
    same_key: bool = False
    source: SourceRef | None = None
    annotation: Any = None


class ArtifactUse(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of ``consumes``: whose artifact, its name, the folder it goes to (ART-02)."""

    module: ModuleRef
    artifact: str
    into: str = "."
    same_key: bool = False


class CacheRule(msgspec.Struct, frozen=True, kw_only=True):
    """The normalised ``cache=`` setting (CACHE-01)."""

    inputs: tuple[str, ...] = ()
    key: tuple[object, ...] = ()
    env: tuple[str, ...] = ()
    version: str | None = None
    portable: bool = False


class ModuleSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a module after checking, in one spelling. Durations are seconds; ``None``: the run's default."""

    timeout_s: float | None = None
    retries: Retry | None = None
    ignore_failure: bool | Callable[[Exception], bool] = False
    always_run: bool = False
    run_if: tuple[ConditionLike, ...] = ()
    skip_if: tuple[ConditionLike, ...] = ()
    priority: int = 0
    requires: Requirement | None = None
    locks: frozenset[str] = frozenset()
    exclusive: bool = False
    pools: Mapping[str, int] = {}
    hint: Literal["cpu", "io"] | None = None
    isolation: Literal["auto", "thread", "process"] = "auto"
    produces: Mapping[str, str] = {}
    consumes: tuple[ArtifactUse, ...] = ()
    cache: CacheRule | None = None
    tags: frozenset[str] = frozenset()
    category: str | None = None
    phase: str | None = None
    gate: bool = False
    version: str | None = None
    at_most_once: bool = False


NO_SETTINGS = ModuleSettings()
"""The settings of every module that was given none: one object, so that large plans pass such modules by quickly."""


class ModuleSpec(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One module as the planner and the runner see it.

    ``call(ctx, inputs, item)`` runs the body: ``inputs`` maps parameter names to values, ``item`` is the
    item of an ``each`` task. It returns a coroutine when ``sync`` is false, else the value.
    The values of matrix axes are taken from ``ctx.matrix``. ``hooks`` holds those that a class overrides, by
    name: ``hook(ctx, inputs=...)`` for ``before``, else ``hook(ctx, outcome, inputs=...)``, a coroutine function
    where the class wrote one. Edges of ``each`` and ``consumes`` stand there alone, not in ``edges``. ``arguments`` are the parameters of an
    instance, for digests. ``matrix``: axis name to values; ``each``: the edge or literal items.
    """

    name: str
    kind: Literal["function", "class"]
    sync: bool
    call: Callable[[Any, dict[str, Any], Any], Any]
    declared: object
    """What the user wrote: the function module, the instance; two loads of one file differ here (MOD-06)."""
    result_type: Any = Any
    edges: tuple[Edge, ...] = ()
    settings: ModuleSettings = NO_SETTINGS
    hooks: Mapping[str, Callable[..., Any]] = {}
    arguments: tuple[tuple[str, object], ...] = ()
    matrix: Mapping[str, Sequence[object]] | None = None
    each: Edge | tuple[object, ...] | Mapping[str, object] | None = None
    code: Any = None
    """The function or class whose source text is the module's version (MOD-29)."""
    source: SourceRef | None = None
    types_resolved: bool = False
    """Annotations of this and of every module it refers to are real types; ``resolve_types`` sets it."""

    @property
    def is_expanded(self) -> bool:
        """Whether the module has one task per key."""
        return self.matrix is not None or self.each is not None
