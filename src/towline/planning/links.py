"""What each module depends on, with selectors resolved and mistakes named (MOD-13, 16, 17, 19, ART-02). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from towline.artifacts.declaration import check_into
from towline.identity.names import suggestion
from towline.modules.spec import Edge, ModuleRef, SelectorRef, SourceRef
from towline.planning.keys import key_text
from towline.planning.records import EdgeUse
from towline.planning.typing_rules import mismatch, type_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from towline.modules.spec import ArtifactUse, ModuleSpec


class Link(msgspec.Struct, frozen=True, gc=False):
    """One declared dependency with its modules found. ``targets`` are places in the sorted list of modules.

    ``many``: the value is a list. ``artifact`` and ``into`` belong to a link that ``consumes`` declared.
    """

    targets: tuple[int, ...]
    use: EdgeUse
    param: str | None
    same_key: bool
    many: bool
    source: SourceRef | None
    artifact: str | None = None
    into: str = "."
    each: bool = False


class Links:
    """Finds the links of all modules of one plan; ``problems`` gathers what cannot be linked."""

    def __init__(self, specs: Sequence[ModuleSpec]) -> None:
        self.problems: list[str] = []
        self._specs = specs
        self._place = {spec.name: place for place, spec in enumerate(specs)}
        self._by_word: dict[tuple[str, str], list[int]] | None = None

    def of(self, place: int) -> tuple[Link, ...]:
        """Return the links of the module at this place, in declared order; absent optional ones included."""
        spec = self._specs[place]
        if not spec.edges and spec.each is None and not spec.settings.consumes:
            return ()
        links = [self._edge(place, spec, edge) for edge in spec.edges]
        if type(spec.each) is Edge:
            links.extend(self._each(place, spec, spec.each))
        if spec.settings.consumes:
            links.extend(self._consumed(spec))
        return tuple(links)

    def _edge(self, place: int, spec: ModuleSpec, edge: Edge) -> Link:
        to = edge.to
        if type(to) is SelectorRef:
            return self._selected(place, spec, edge, to)
        assert type(to) is ModuleRef
        target = self._place.get(to.name)
        if target is None:  # only an optional edge leaves its module out (MOD-12)
            return Link((), edge.use, edge.param, False, to.spec.is_expanded and not edge.same_key, edge.source)
        offered = self._specs[target]
        if edge.same_key:
            self._check_same_key(spec, offered)
        many = offered.is_expanded and not edge.same_key
        if edge.annotation is not None and edge.use != "order":
            self._check_type(spec, edge, offered, many=many)
        return Link((target,), edge.use, edge.param, edge.same_key, many, edge.source)

    def _selected(self, place: int, spec: ModuleSpec, edge: Edge, selector: SelectorRef) -> Link:
        """Resolve a selector to the plan's other modules, sorted by name (MOD-16, PLAN-09)."""
        if self._by_word is None:
            self._by_word = {}
            for position, candidate in enumerate(self._specs):
                settings = candidate.settings
                for word in {tag.casefold() for tag in settings.tags}:
                    self._by_word.setdefault(("tag", word), []).append(position)
                if settings.category is not None:
                    self._by_word.setdefault(("category", settings.category.casefold()), []).append(position)
        chosen = self._by_word.get((selector.kind, selector.value.casefold()), ())
        targets = tuple(target for target in chosen if target != place)
        if not targets:
            words = [word for kind, word in self._by_word if kind == selector.kind]
            self.problems.append(
                f"{spec.name} ({edge.source}) selects {selector.kind} {selector.value!r}, which no other module "
                f"of the plan has.{suggestion(selector.value, words)}".rstrip(".")
            )
        for target in targets:
            offered = self._specs[target]
            if edge.use in ("value", "optional") and mismatch(selector.result_type, offered.result_type):
                self.problems.append(
                    f"{spec.name} ({edge.source}) selects {selector.kind} {selector.value!r} as "
                    f"{type_name(selector.result_type)}, but {offered.name} gives {type_name(offered.result_type)}"
                )
        return Link(targets, edge.use, edge.param, False, True, edge.source)

    def _each(self, place: int, spec: ModuleSpec, edge: Edge) -> Iterator[Link]:
        if type(edge.to) is not ModuleRef or edge.use != "value" or edge.to.spec.is_expanded:
            self.problems.append(
                f"{spec.name} ({edge.source}): each= takes result_of() of a module that has one task; "
                f"gather other results in a module of their own first"
            )
            return
        yield msgspec.structs.replace(self._edge(place, spec, edge), param=None, each=True)

    def _consumed(self, spec: ModuleSpec) -> Iterator[Link]:
        """Check what ``consumes`` names and turn it into required links (ART-02)."""
        asked: set[tuple[str, str]] = set()
        for use in spec.settings.consumes:
            target = self._place[use.module.name]
            producer = self._specs[target]
            problem = _artifact_problem(use, producer, asked)
            if problem:
                self.problems.append(f"{spec.name} ({spec.source}) consumes {problem}")
            if use.same_key:
                self._check_same_key(spec, producer)
            many = producer.is_expanded and not use.same_key
            yield Link((target,), "order", None, use.same_key, many, spec.source, use.artifact, use.into)

    def _check_same_key(self, spec: ModuleSpec, target: ModuleSpec) -> None:
        """Refuse a pairing that would leave a task of ``spec`` without partner (MOD-19)."""
        problem = _same_key_problem(spec.matrix, target.matrix)
        if problem:
            self.problems.append(f"{spec.name} ({spec.source}) takes {target.name} with same_key=True, but {problem}")

    def _check_type(self, spec: ModuleSpec, edge: Edge, offered: ModuleSpec, *, many: bool) -> None:
        """Refuse an annotation that no value of the dependency can have (MOD-17)."""
        if edge.use == "outcome":
            return
        given = list if many else offered.result_type
        if mismatch(edge.annotation, given):
            self.problems.append(
                f"parameter {edge.param!r} of {spec.name} ({edge.source}) is a {type_name(edge.annotation)}, "
                f"but {offered.name} gives {type_name(given)}"
            )


def _artifact_problem(use: ArtifactUse, producer: ModuleSpec, asked: set[tuple[str, str]]) -> str | None:
    if use.artifact not in producer.settings.produces:
        near = suggestion(use.artifact, producer.settings.produces)
        return f"artifact {use.artifact!r} of {producer.name}, which does not produce it.{near}".rstrip(".")
    if (producer.name, use.artifact) in asked:
        return f"artifact {use.artifact!r} of {producer.name} twice: ask for it once"
    asked.add((producer.name, use.artifact))
    try:
        check_into(use.into)
    except ValueError as error:
        return f"artifact {use.artifact!r} of {producer.name} into {error}"
    return None


def _same_key_problem(
    own: Mapping[str, Sequence[object]] | None, other: Mapping[str, Sequence[object]] | None
) -> str | None:
    if other is None:
        return "that has no matrix, so it has no key to pair with"
    missing = [axis for axis in other if own is None or axis not in own]
    if own is None or missing:
        return f"has no axis {missing[0]!r} itself"
    for axis, values in other.items():
        known = {key_text(value) for value in values}
        lacking = [value for value in own[axis] if key_text(value) not in known]
        if lacking:
            return f"that has no {lacking[0]!r} on axis {axis!r}"
    return None
