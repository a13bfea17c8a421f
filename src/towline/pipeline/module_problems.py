"""What a run cannot do with a module, found while its plan is built (COORD-C25, SCHED-11, SER-02)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from towline.errors.values import ResultTypeError, ValueTravelError
from towline.modules.capabilities import in_words, is_impossible
from towline.modules.spec import NO_SETTINGS, Edge, ModuleRef

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from towline.execution.options import Options
    from towline.modules.spec import ModuleSpec
    from towline.serialization.codec import Codec


def problems_with(spec: ModuleSpec, options: Options, *, must_travel: bool) -> Iterable[str]:
    """Name what this run cannot do with a module (COORD-C25, SCHED-11, SER-02)."""
    if spec.settings is NO_SETTINGS and not must_travel:
        return ()
    return _problems_with(spec, options, must_travel=must_travel)


def _problems_with(spec: ModuleSpec, options: Options, *, must_travel: bool) -> Iterator[str]:
    settings = spec.settings
    where = f" ({spec.source})" if spec.source else ""
    if settings.requires is not None and is_impossible(settings.requires):
        yield f"{spec.name}: requires {in_words(settings.requires)}, which no machine can be{where}"
    for pool, wanted in settings.pools.items():
        declared = options.pools.get(pool)
        if declared is None:
            known = ", ".join(sorted(options.pools)) or "none are declared"
            yield f"{spec.name}: pool {pool!r} is not in Options.pools ({known}){where}"
            continue
        tickets = declared if isinstance(declared, int) else declared.tickets
        if wanted > tickets:
            yield f"{spec.name}: wants {wanted} tickets of pool {pool!r}, which has {tickets}{where}"
    if must_travel or settings.isolation == "process" or settings.cache is not None:
        try:
            codec_of(spec)
        except ValueTravelError as error:
            yield f"{error}{where}"
    if settings.isolation == "process" and not must_travel:
        yield from _unreadable_inputs(spec, where)


def _unreadable_inputs(spec: ModuleSpec, where: str) -> Iterable[str]:
    """Name the results that cannot travel to a body in a process of its own (SER-02)."""
    read = [edge.to.spec for edge in spec.edges if edge.param is not None and isinstance(edge.to, ModuleRef)]
    if isinstance(spec.each, Edge) and isinstance(spec.each.to, ModuleRef):
        read.append(spec.each.to.spec)
    for source in read:
        try:
            codec_of(source)
        except ValueTravelError as error:
            yield f"{spec.name} runs in a process and reads {source.name}: {error}{where}"


def limited_threads(specs: Iterable[ModuleSpec]) -> Iterator[ModuleSpec]:
    """Yield the modules with a limit that somebody set on a body which cannot be ended at it (RUN-22)."""
    for spec in specs:
        settings = spec.settings
        if settings is not NO_SETTINGS and spec.sync and settings.isolation != "process" and settings.timeout_s:
            yield spec


def codec_of(spec: ModuleSpec) -> Codec:
    """Return the codec of a module's results.

    Raises:
        ResultTypeError: The type has no JSON form (SER-02).
    """
    from towline.serialization.codec import codec_for

    try:
        return codec_for(spec.result_type)
    except ResultTypeError as error:
        raise error.for_module(spec.name) from error.__cause__
