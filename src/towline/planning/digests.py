"""What a task, a graph and a set of parameters are, as digests (PLAN-14 to 16). Pure."""

from __future__ import annotations

from enum import Enum
from functools import cache
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import msgspec

from towline.identity.digests import digest_of, digest_of_parts
from towline.modules.spec import NO_SETTINGS, Edge
from towline.planning.typing_rules import type_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from towline.modules.spec import ModuleSpec
    from towline.planning.records import EdgeUse, PlannedTask

GRAPH_SLICE = 1_000
"""Tasks of a graph that are encoded at once for its digest: a large plan needs no second copy of all its digests."""


def canonical_json(value: object) -> bytes:
    """Encode a value with sorted keys and without spaces, so that equal values give equal bytes.

    A value without JSON form counts by the name of its type, and by its fields where it has some.
    """
    return _ENCODER.encode(value)


def own_head(spec: ModuleSpec, phase: str | None) -> bytes:
    """Return what the tasks of a module have in common in their ``own_digest`` (PLAN-14).

    Name, parameters, declared ``version``, phase, ``produces``, ``consumes``, result type. Not time limits,
    retries, priority, tags or gates; items that ``each`` was given, but not those of a source; and not source text, so that a repaired body goes on at its cursor.
    """
    settings = spec.settings
    if settings is NO_SETTINGS and spec.each is None and not spec.arguments:
        return b"[%b,%b" % (_ENCODER.encode(spec.name), _plain_rest(phase, type_name(spec.result_type)))
    each = True if type(spec.each) is Edge else spec.each
    consumes = (
        [(use.module.name, use.artifact, use.into, use.same_key) for use in settings.consumes]
        if settings.consumes
        else ()
    )
    return canonical_json(
        (
            spec.name,
            spec.arguments,
            settings.version,
            phase,
            settings.produces,
            consumes,
            type_name(spec.result_type),
            each,
        )
    )


@cache
def _plain_rest(phase: str | None, result_type: str) -> bytes:
    """Encode what follows the name in the head of a module without settings: in a large plan most share it."""
    nothing = ((), NO_SETTINGS.version, phase, NO_SETTINGS.produces, (), result_type, None)
    return canonical_json(nothing).removeprefix(b"[")


def edges_part(depends_on: tuple[str, ...], edges: Mapping[str, EdgeUse] | None) -> bytes:
    """Return what the dependencies of a task add to its ``own_digest``: ids, and kinds other than ``value``."""
    return _ENCODER.encode((depends_on, edges)) if depends_on else b""


def own_digest(head: bytes, edges: bytes, key: str | None) -> str:
    """Return the ``own_digest`` of one task; the lengths keep the parts apart."""
    tail = b"" if key is None else key.encode("utf-8", "surrogatepass")
    return digest_of(b"%d %d\n%b%b%b" % (len(head), len(edges), head, edges, tail))


def closure_part(above: Iterable[str]) -> str:
    """Join the closure digests of a task's dependencies, in an order that does not depend on names."""
    return "".join(sorted(above))


def closure_digest(own: str, above: str) -> str:
    """Return the ``closure_digest``: the task itself and everything above it (PLAN-15)."""
    return digest_of((own + above).encode())


def child_digests(join: PlannedTask, above: str, key: str, item_digest: str) -> tuple[str, str]:
    """Return own and closure digest of a child of an ``each`` module (PLAN-15).

    ``above`` has the closure digests of its dependencies without the source of the items: in place of
    that stand key and item, so that an unchanged item of a changed list keeps its task (PLAN-61).
    """
    own = digest_of(f"{join.own_digest}\n{key}".encode("utf-8", "surrogatepass"))
    return own, digest_of(f"{own}{above}\n{item_digest}\n{key}".encode("utf-8", "surrogatepass"))


def graph_digest(tasks: Iterable[PlannedTask]) -> str:
    """Return the digest of the graph as built, before an ``each`` grows it (``planning.md`` section 2)."""
    ordered = sorted(tasks, key=_id_of)
    return digest_of_parts(
        _ENCODER.encode([(task.id, task.own_digest, task.code_digest) for task in ordered[start : start + GRAPH_SLICE]])
        for start in range(0, max(len(ordered), 1), GRAPH_SLICE)
    )


def _id_of(task: PlannedTask) -> str:
    return task.id


def program_fingerprint(graph: str, kernels: Mapping[str, str] | None = None) -> str:
    """Return what all nodes of a run must share: the graph with its code, and the offload kernels (DIST-08)."""
    return digest_of(canonical_json((graph, kernels or {})))


def params_digests(params: Mapping[str, object], *, secret: type | tuple[type, ...] = ()) -> tuple[str, dict[str, str]]:
    """Return the digest of all parameters together, and one per name for error texts (PLAN-16).

    Values of the types in ``secret`` are no part of either.
    """
    known = {name: value for name, value in params.items() if not isinstance(value, secret)}
    return digest_of(canonical_json(known)), {name: digest_of(canonical_json(value)) for name, value in known.items()}


def _plain(value: object) -> Any:
    """Give what msgspec cannot encode by itself another form that depends on the value alone."""
    match value:
        case PurePath():
            return value.as_posix()
        case Enum():
            return value.name
        case range() | complex():
            return repr(value)
    dump = getattr(value, "model_dump", None)  # pydantic
    if callable(dump) and not isinstance(value, type):
        return dump(mode="json")
    if isinstance(value, type) or callable(value):
        return type_name(value)
    return [type_name(type(value)), getattr(value, "__dict__", {})]


_ENCODER = msgspec.json.Encoder(order="deterministic", enc_hook=_plain)
