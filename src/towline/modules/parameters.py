"""What the type of a pipeline's parameters asks for, and what to type for it (MOD-22)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Container

VARIABLE = "TOWLINE_PARAM_"

_WORDS = {int: "INT", float: "NUMBER", str: "TEXT", bool: "true|false"}


def placeholder(kind: Any) -> str:
    """Return what stands for a value of a type on a command line: ``INT``, ``TEXT``, ``eu|us``, ``PATH``, ``JSON``."""
    if kind in _WORDS:
        return _WORDS[kind]
    if get_origin(kind) is Literal:
        return "|".join(str(choice) for choice in get_args(kind))
    some = [part for part in get_args(kind) if part is not type(None)]
    if len(some) == 1 and type(None) in get_args(kind):
        return placeholder(some[0])
    name = getattr(kind, "__name__", "")
    return name.upper() if name in ("Path", "Decimal", "datetime", "date", "UUID") else "JSON"


def missing_parameters(kind: type[Any], given: Container[str] = ()) -> str | None:
    """Say which parameters have no value and no default, and how to give them; ``None`` when none is missing.

    Args:
        kind: A dataclass, ``msgspec.Struct``, attrs class or pydantic model: its signature tells.
        given: Names that have a value.
    """
    from inspect import Parameter, signature

    from towline.masking.secret import Secret

    hints = get_type_hints(kind)
    missing = [
        one.name
        for one in signature(kind).parameters.values()
        if one.default is Parameter.empty
        and one.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
        and one.name not in given
    ]
    if not missing:
        return None
    flags = [f"--param {name}={placeholder(hints.get(name))}" for name in missing if hints.get(name) is not Secret]
    secrets = [f"the variable {VARIABLE}{name.upper()}" for name in missing if hints.get(name) is Secret]
    how = " and ".join(part for part in (" ".join(flags), ", ".join(secrets)) if part)
    return f"{', '.join(missing)} {'has' if len(missing) == 1 else 'have'} no value and no default: give {how}"
