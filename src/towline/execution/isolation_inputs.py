"""The inputs of a body as they travel to its child process: both sides work the forms out from the same module."""

from __future__ import annotations

from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from towline.artifacts.records import ArtifactRef
from towline.errors.values import SerializationError
from towline.execution.isolation_messages import NOTHING
from towline.modules.outcomes import Cancelled, Failed, Finding, Outcome, Reason, Skipped, Succeeded, TimedOut
from towline.modules.spec import ModuleRef
from towline.serialization.codec import codec_for
from towline.serialization.errors_record import ErrorRecord

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import PurePath

    from towline.modules.spec import Edge, ModuleSpec


class _Facts(msgspec.Struct, frozen=True, kw_only=True):
    task_id: str
    started_at: float | None
    finished_at: float
    attempts: int
    epoch: int
    worker_id: str | None
    reason: Reason | None
    artifacts: tuple[ArtifactRef, ...]
    findings: tuple[Finding, ...]


class OutcomeForm(msgspec.Struct, frozen=True, kw_only=True):
    """An outcome on its way: its class by name, its facts, and its payload."""

    kind: str
    facts: _Facts
    value: msgspec.Raw = NOTHING
    error: ErrorRecord | None = None
    ignored: bool = False
    abandoned: bool = False
    origin: Literal["executed", "cached", "kept"] = "executed"


class _One(msgspec.Struct, frozen=True):
    """One value, by the module that gave it: a selector's values come from several."""

    module: str
    value: msgspec.Raw


_encode = msgspec.json.Encoder().encode
_FACTS = tuple(_Facts.__struct_fields__)


def encode_inputs(
    spec: ModuleSpec,
    specs: Mapping[str, ModuleSpec],
    inputs: Mapping[str, Any],
    sources: Mapping[str, Sequence[str]],
    workdir: PurePath,
) -> dict[str, msgspec.Raw]:
    """Encode what a body receives, by parameter.

    ``sources``: for each parameter that a selector fills, the modules behind its values, in their order.

    Raises:
        SerializationError, ResultTypeError: A value is not of its declared type, or has no JSON form.
    """
    encoded: dict[str, msgspec.Raw] = {}
    for edge in spec.edges:
        if edge.param is None or edge.param not in inputs:
            continue
        value = inputs[edge.param]
        if not isinstance(edge.to, ModuleRef):
            pairs = zip(sources[edge.param], value, strict=True)
            data = _encode([_One(name, _encode_one(edge, specs[name], one, workdir)) for name, one in pairs])
        elif _is_many(edge):
            data = _encode([_encode_one(edge, edge.to.spec, one, workdir) for one in value])
        else:
            data = bytes(_encode_one(edge, edge.to.spec, value, workdir))
        encoded[edge.param] = msgspec.Raw(data)
    return encoded


def decode_inputs(
    spec: ModuleSpec, specs: Mapping[str, ModuleSpec], encoded: Mapping[str, msgspec.Raw], workdir: PurePath
) -> dict[str, Any]:
    """Give back the inputs that ``encode_inputs`` wrote.

    Raises:
        SerializationError: The text is not such a value; its path says where.
    """
    inputs: dict[str, Any] = {}
    for edge in spec.edges:
        if edge.param is None or edge.param not in encoded:
            continue
        data = encoded[edge.param]
        if not isinstance(edge.to, ModuleRef):
            ones = msgspec.json.decode(data, type=list[_One])
            inputs[edge.param] = [_decode_one(edge, specs[one.module], one.value, workdir) for one in ones]
        elif _is_many(edge):
            raws = msgspec.json.decode(data, type=list[msgspec.Raw])
            inputs[edge.param] = [_decode_one(edge, edge.to.spec, one, workdir) for one in raws]
        else:
            inputs[edge.param] = _decode_one(edge, edge.to.spec, data, workdir)
    return inputs


def encode_item(spec: ModuleSpec, item: Any, workdir: PurePath) -> msgspec.Raw:
    """Encode the item of an ``each`` task; ``NOTHING`` where the child finds it in the module itself."""
    kind = _item_type(spec)
    return NOTHING if kind is None else msgspec.Raw(codec_for(kind).encode(item, workdir=workdir))


def decode_item(spec: ModuleSpec, place: int | None, data: msgspec.Raw, workdir: PurePath) -> Any:
    """Give back an item; ``place`` counts from 0 among the items of the module."""
    kind = _item_type(spec)
    if kind is not None:
        return codec_for(kind).decode(data, workdir=workdir)
    if place is None or spec.each is None:
        return None
    literal: Any = spec.each
    return list(literal.values() if hasattr(literal, "values") else literal)[place]


def _item_type(spec: ModuleSpec) -> Any:
    """The type of the items of an ``each`` source; ``None`` without one, or for literal items."""
    source = getattr(spec.each, "to", None)
    if not isinstance(source, ModuleRef):
        return None
    declared = source.spec.result_type
    while get_origin(declared) in (Annotated, Union, UnionType):
        options = [one for one in get_args(declared) if one is not type(None)]
        declared = options[0]
    arguments = get_args(declared)
    if not arguments:
        return Any
    return arguments[-1] if get_origin(declared) is dict else arguments[0]


def _is_many(edge: Edge) -> bool:
    return isinstance(edge.to, ModuleRef) and edge.to.spec.is_expanded and not edge.same_key


def _encode_one(edge: Edge, source: ModuleSpec, value: Any, workdir: PurePath) -> msgspec.Raw:
    if edge.use == "outcome":
        return msgspec.Raw(_encode(_outcome_form(source, value, workdir)))
    if value is None and edge.use == "optional":
        return NOTHING
    return msgspec.Raw(codec_for(source.result_type).encode(value, workdir=workdir))


def _decode_one(edge: Edge, source: ModuleSpec, data: msgspec.Raw, workdir: PurePath) -> Any:
    if edge.use == "outcome":
        return _outcome(source, msgspec.json.decode(data, type=OutcomeForm), workdir)
    if edge.use == "optional" and bytes(data) == b"null":
        return None
    return codec_for(source.result_type).decode(data, workdir=workdir)


def _outcome_form(source: ModuleSpec, outcome: Outcome[Any], workdir: PurePath) -> OutcomeForm:
    facts = _Facts(**{name: getattr(outcome, name) for name in _FACTS})
    kind = type(outcome).__name__
    if isinstance(outcome, Succeeded):
        value = msgspec.Raw(codec_for(source.result_type).encode(outcome.value, workdir=workdir))
        return OutcomeForm(kind=kind, facts=facts, value=value, origin=outcome.origin)
    if isinstance(outcome, Failed | TimedOut):
        abandoned = isinstance(outcome, TimedOut) and outcome.abandoned
        return OutcomeForm(kind=kind, facts=facts, error=outcome.error, ignored=outcome.ignored, abandoned=abandoned)
    return OutcomeForm(kind=kind, facts=facts, abandoned=isinstance(outcome, Cancelled) and outcome.abandoned)


def _outcome(source: ModuleSpec, form: OutcomeForm, workdir: PurePath) -> Outcome[Any]:
    facts: dict[str, Any] = {name: getattr(form.facts, name) for name in _FACTS}
    if form.kind == "Succeeded":
        value = codec_for(source.result_type).decode(form.value, workdir=workdir)
        return Succeeded(value, origin=form.origin, **facts)
    if form.kind == "Failed" and form.error is not None:
        return Failed(form.error, ignored=form.ignored, **facts)
    if form.kind == "TimedOut" and form.error is not None:
        return TimedOut(form.error, ignored=form.ignored, abandoned=form.abandoned, **facts)
    if form.kind == "Cancelled":
        return Cancelled(abandoned=form.abandoned, **facts)
    if form.kind == "Skipped":
        return Skipped(**facts)
    raise SerializationError("outcome.kind", f"is {form.kind!r}")
