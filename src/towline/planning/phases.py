"""Phases of a plan and the gates between them (PLAN-04, PLAN-50). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from towline.identity.names import suggestion

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from towline.modules.spec import ModuleSpec
    from towline.planning.links import Link


class Phases:
    """Which phase each module is in, and which gates it waits for.

    A phase is no barrier and adds no edge but one: a gate of phase p is waited for by every task of
    later phases, unless it is ``always_run``. A module without phase is in none, before none.
    """

    def __init__(self, names: Sequence[str], modules: Sequence[ModuleSpec]) -> None:
        self.names = tuple(names)
        self._modules = modules
        self._rank_of_name = {name.casefold(): rank for rank, name in enumerate(names)}
        ranks = self._rank_of_name
        self.ranks: list[int | None] = [
            None if spec.settings.phase is None else ranks.get(spec.settings.phase.casefold()) for spec in modules
        ]
        gates: list[list[int]] = [[] for _ in names]
        for place, spec in enumerate(modules):
            rank = self.ranks[place]
            if spec.settings.gate and rank is not None:
                gates[rank].append(place)
        self._gates_before: list[tuple[int, ...]] = []
        before: tuple[int, ...] = ()
        for own in gates:
            self._gates_before.append(before)
            before += tuple(own)

    def name_of(self, place: int) -> str | None:
        """Return the phase of a module as ``Pipeline(phases=...)`` spells it."""
        rank = self.ranks[place]
        return None if rank is None else self.names[rank]

    def gates_of(self, place: int) -> tuple[int, ...]:
        """Return the gates that a module waits for; the same tuple for a whole phase."""
        rank = self.ranks[place]
        if rank is None or self._modules[place].settings.always_run:
            return ()
        return self._gates_before[rank]

    def problems(self, links: Sequence[Sequence[Link]]) -> Iterator[str]:
        """Name unknown phases, gates with ``always_run``, and dependencies on a later phase."""
        if len(self._rank_of_name) != len(self.names):
            yield f"phases={self.names!r} names a phase twice, case ignored"
        for place, spec in enumerate(self._modules):
            settings = spec.settings
            if settings.gate and settings.always_run:
                yield f"{spec.name} ({spec.source}) is a gate with always_run=True: it could not stop what it guards"
            rank = self.ranks[place]
            if rank is None:
                if settings.phase is not None:
                    known = f"known are {', '.join(self.names)}" if self.names else "the pipeline declares none"
                    near = suggestion(settings.phase, self.names).rstrip(".")
                    yield f"{spec.name} ({spec.source}) is in phase {settings.phase!r}, but {known}.{near}".rstrip(".")
                continue
            for link in links[place]:
                for target in link.targets:
                    later = self.ranks[target]
                    if later is not None and later > rank:
                        yield (
                            f"{spec.name} of phase {self.names[rank]!r} depends on {self._modules[target].name} of the "
                            f"later phase {self.names[later]!r} ({link.source or spec.source})"
                        )
