"""What others rely on: records of earlier versions are read for ever, public signatures change only by a decision.

``golden/`` has one file per version. After a change that is meant: ``TOWLINE_TEST_REWRITE=1`` writes the files of this
version anew; an older version's file is never touched.
"""

from __future__ import annotations

import inspect
import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from towline.coordination import contract, records
from towline.coordination.document import Document
from towline.testing import clause

GOLDEN = Path(__file__).parent / "golden"
VERSION = "1"
DEEPEST = 5
REWRITE = bool(os.environ.get("TOWLINE_TEST_REWRITE"))

PROTOCOLS = (
    contract.WorkerCoordinator,
    contract.MasterCoordinator,
    contract.CoordinatorFactory,
    contract.MasterDiscovery,
    contract.RunCleanup,
    Document,
)


def _record_types() -> dict[str, type[msgspec.Struct]]:
    return {
        name: found
        for name, found in sorted(vars(records).items())
        if isinstance(found, type) and issubclass(found, msgspec.Struct) and found.__module__ == records.__name__
    }


def _full(kind: Any, depth: int = 0) -> Any:
    """Make plain data that fills every field of a type: no field is left at its default."""
    if kind is Any or kind is msgspec.Raw:
        return {"any": [1]}
    info = msgspec.inspect.type_info(kind)
    return _filled(info, depth)


def _filled(info: Any, depth: int) -> Any:
    match info:
        case msgspec.inspect.StructType():
            data = {field.encode_name: _filled(field.type, depth + 1) for field in info.fields}
            return {info.tag_field: info.tag, **data} if info.tag_field else data
        case msgspec.inspect.UnionType():
            if depth > DEEPEST and any(isinstance(one, msgspec.inspect.NoneType) for one in info.types):
                return None  # an error may have a cause, which may have a cause
            chosen = [one for one in info.types if not isinstance(one, msgspec.inspect.NoneType)]
            return _filled(chosen[0], depth)
        case msgspec.inspect.ListType() | msgspec.inspect.VarTupleType() | msgspec.inspect.SetType():
            return [_filled(info.item_type, depth + 1)] if depth <= DEEPEST else []
        case msgspec.inspect.TupleType():
            return [_filled(one, depth + 1) for one in info.item_types]
        case msgspec.inspect.DictType():
            return {"key": _filled(info.value_type, depth + 1)} if depth <= DEEPEST else {}
        case msgspec.inspect.LiteralType():
            return info.values[-1]
        case msgspec.inspect.EnumType():
            return list(info.cls)[-1].value
        case msgspec.inspect.BoolType():
            return True
        case msgspec.inspect.IntType():
            return 7
        case msgspec.inspect.FloatType():
            return 1.5
        case msgspec.inspect.StrType():
            return "text"
        case msgspec.inspect.RawType() | msgspec.inspect.AnyType():
            return {"any": [1]}
        case _:
            raise TypeError(f"the golden files know no {info}")


@clause("COORD-C84")
@pytest.mark.parametrize("name", _record_types())
def test_every_record_of_every_version_is_read(name: str) -> None:
    """A master of next year reads what a worker of today has stored; a field that vanished or was renamed fails here."""
    kind = _record_types()[name]
    newest = GOLDEN / f"records-{VERSION}" / f"{name}.json"
    if REWRITE:
        newest.parent.mkdir(parents=True, exist_ok=True)
        newest.write_text(json.dumps(_full(kind), indent=1, sort_keys=True) + "\n", encoding="utf-8")
    assert newest.is_file(), f"{newest} is missing: a new record gets its file with TOWLINE_TEST_REWRITE=1"
    for path in sorted(GOLDEN.glob(f"records-*/{name}.json")):
        stored = path.read_bytes()
        decoded = msgspec.json.decode(stored, type=kind)
        again = json.loads(msgspec.json.encode(decoded))
        assert _contains(again, json.loads(stored)), f"{path} lost something when it was read"


def _contains(whole: Any, part: Any) -> bool:
    """Whether all of ``part`` is in ``whole``; defaults that are omitted when written count as there."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(
            key in whole and _contains(whole[key], value) for key, value in part.items() if not _is_default(key, value)
        )
    if isinstance(part, list):
        return isinstance(whole, list) and len(whole) == len(part) and all(map(_contains, whole, part))
    return bool(whole == part)


def _is_default(key: str, value: Any) -> bool:
    return value in (None, [], {}) or (key == "has_events" and value is True)


def _signatures() -> dict[str, str]:
    found: dict[str, str] = {}
    for protocol in PROTOCOLS:
        for name, member in sorted(vars(protocol).items()):
            if inspect.isfunction(member) and not name.startswith("_"):
                found[f"{protocol.__name__}.{name}"] = str(inspect.signature(member)).replace("'", "")
    for name, kind in _record_types().items():
        fields = msgspec.structs.fields(kind)
        found[name] = ", ".join(f"{field.name}{'' if field.required else '?'}" for field in fields)
    return found


@clause("COORD-C88")
def test_public_signatures_are_those_of_the_last_release() -> None:
    """Authors of coordinators build on these: what is added is optional, what is removed waits for a major release."""
    path = GOLDEN / f"signatures-{VERSION}.json"
    now = _signatures()
    if REWRITE:
        path.write_text(json.dumps(now, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    stored: dict[str, str] = json.loads(path.read_text("utf-8"))
    assert now == stored


@clause("COORD-C84")
def test_methods_that_were_added_have_a_body() -> None:
    """A coordinator written for an earlier release lacks them, and must go on working."""
    for name in ("publish_and_claim", "withdraw_claim"):
        assert "NotImplementedError" not in inspect.getsource(getattr(contract.WorkerCoordinator, name))
    assert "..." not in inspect.getsource(contract.MasterCoordinator.trim_feed)
