"""The edges of a module: from markers, ``after`` and ``consumes`` (MOD-12, MOD-13, MOD-16)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from towline.identity import suggestion
from towline.modules.checking import checked_requests
from towline.modules.kinds import is_module
from towline.modules.markers import Marker, marker_parts
from towline.modules.reference import reference_to
from towline.modules.selectors import Selector
from towline.modules.spec import ArtifactUse, Edge, ModuleRef

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from towline.modules.checking import Declaring
    from towline.modules.settings import ArtifactRequest
    from towline.modules.spec import SelectorRef

MarkedField = tuple[str, Marker, Any]
"""A parameter or field, its marker, and its annotation, resolved or not."""


def edges_of(
    declaring: Declaring, marked: Sequence[MarkedField], settings: Mapping[str, Any], *, always_run: bool
) -> tuple[Edge, ...]:
    """Make the edges of markers and ``after``, in the order in which they were written.

    Raises:
        DeclarationError: ``after`` holds something else than modules and selectors, or an ``always_run``
            module asks for a result, which a failed dependency does not have (MOD-09).
    """
    if not marked and "after" not in settings:
        return ()
    edges = [_marked_edge(declaring, *one) for one in marked]
    if always_run:
        for edge in edges:
            if edge.use == "value":
                allowed = f"not together with {edge.param} = result_of(...): what always runs takes maybe_result_of or outcome_of"
                declaring.refuse("always_run", True, allowed)
    edges.extend(_order_edge(declaring, one) for one in _listed(declaring, "after", settings.get("after", ())))
    return tuple(edges)


def uses_of(declaring: Declaring, value: object) -> tuple[ArtifactUse, ...]:
    """Resolve ``consumes``: each request names an artifact that its module produces (ART-02).

    Raises:
        DeclarationError: An unknown artifact, one asked for twice, or a folder outside the workdir.
    """
    uses: list[ArtifactUse] = []
    for request in checked_requests(declaring, value):
        module = reference_to(request.module)
        _check_request(declaring, request, module)
        use = ArtifactUse(module=module, artifact=request.name, into=request.into, same_key=request.same_key)
        if any((other.module.name, other.artifact) == (module.name, request.name) for other in uses):
            declaring.refuse("consumes", f"{module.name}.artifact({request.name!r})", "it is asked for twice")
        uses.append(use)
    return tuple(uses)


def _check_request(declaring: Declaring, request: ArtifactRequest, module: ModuleRef) -> None:
    from towline.artifacts.declaration import check_into

    produced = module.spec.settings.produces
    if request.name not in produced:
        known = ", ".join(sorted(produced)) or "nothing"
        hint = suggestion(request.name, produced)
        declaring.refuse("consumes", request.name, f"{module.name} produces {known}.{hint}")
    if request.same_key and not module.spec.is_expanded:
        declaring.refuse(
            "consumes", request.name, f"same_key needs a module with matrix or each, which {module.name} has not"
        )
    try:
        check_into(request.into)
    except ValueError as error:
        declaring.refuse("consumes", request.into, str(error), error)


def _marked_edge(declaring: Declaring, param: str, marker: Marker, annotation: Any) -> Edge:
    module, use, same_key = marker_parts(marker)
    return Edge(
        to=_target(declaring, param, module),
        use=use,
        param=param,
        same_key=same_key,
        source=declaring.source,
        annotation=annotation,
    )


def _order_edge(declaring: Declaring, module: object) -> Edge:
    return Edge(to=_target(declaring, "after", module), use="order", source=declaring.source)


def _target(declaring: Declaring, setting: str, module: object) -> ModuleRef | SelectorRef:
    if isinstance(module, Selector):
        return module.reference
    if not is_module(module):
        hint = (
            "decorate the function with @module" if callable(module) else "a module or a selector, such as tagged('db')"
        )
        declaring.refuse(setting, module, hint)
    return reference_to(module)  # type: ignore[arg-type]


def _listed(declaring: Declaring, setting: str, value: object) -> Sequence[object]:
    if not isinstance(value, (list, tuple)):
        declaring.refuse(setting, value, "a list of modules and selectors")
    return value
