"""Parameters of a kernel: typed by their declaration, checked when a call is added (OFF-104, OFF-105, OFF-106)."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args, get_origin

import msgspec

from towline.errors.offload import KernelDeclarationError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_PARAMS_BYTES = 16 * 1024
_INT_LIMIT = 1 << 63
_SCALARS: dict[str, type] = {"bool": bool, "int": int, "float": float, "str": str, "bytes": bytes}


class ParamSpec(msgspec.Struct, frozen=True):
    """One keyword-only parameter: its name, its type (``float``, ``list[int]``, …), whether it may be left out."""

    name: str
    type: str
    default: Any = None
    required: bool = True


def declared_arrays(function: Callable[..., None], kernel: str, variadic: bool) -> tuple[int, int]:
    """Read how many arrays a kernel takes: (reads, writes).

    Positional parameters are arrays, inputs before outputs. A ``/`` in the signature separates the two;
    without one the last array is taken to be the output, and a call is held to the sum alone.
    """
    positional = [p for p in inspect.signature(function).parameters.values() if p.kind is not p.KEYWORD_ONLY]
    for parameter in positional:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise KernelDeclarationError(kernel, str(parameter), "takes any arguments; declare variadic=True for lists")
        if parameter.default is not parameter.empty:
            raise KernelDeclarationError(kernel, parameter.name, "is an array and has a default; arrays have none")
    if variadic:
        if len(positional) != 2:
            raise KernelDeclarationError(kernel, "variadic", "needs exactly two positional parameters: reads, writes")
        return 0, 0
    before = sum(p.kind is p.POSITIONAL_ONLY for p in positional)
    count = len(positional)
    if 0 < before < count:
        return before, count - before
    return max(count - 1, 0), min(count, 1)


def declared_params(function: Callable[..., None], kernel: str) -> tuple[ParamSpec, ...]:
    """Read the keyword-only parameters and their types.

    Raises:
        KernelDeclarationError: A type is missing or is none of bool, int, float, str, bytes, or a flat list of one.
    """
    specs = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is not parameter.KEYWORD_ONLY:
            continue
        kind = _type_name(parameter.annotation)
        if kind is None:
            raise KernelDeclarationError(
                kernel, parameter.name, "needs a type: bool, int, float, str, bytes, or a list of one of them"
            )
        required = parameter.default is parameter.empty
        default = None if required else _checked(kernel, parameter.name, kind, parameter.default)
        specs.append(ParamSpec(parameter.name, kind, default, required))
    return tuple(specs)


def bind_params(kernel: str, specs: Sequence[ParamSpec], given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the complete parameters of one call, lists copied, in declaration order.

    Raises:
        ParameterError: One is missing, unknown, of another type, beyond 64 bits, or all are too large.
    """
    given = given or {}
    if not isinstance(given, Mapping):
        raise ParameterError(kernel, "params", "a mapping of names to values", type(given).__name__)
    names = {spec.name for spec in specs}
    for name in given:
        if name not in names:
            known = ", ".join(sorted(names)) or "no parameters"
            raise ParameterError(kernel, repr(name), f"one of {known}", "an unknown name")
    bound: dict[str, Any] = {}
    for spec in specs:
        if spec.name in given:
            bound[spec.name] = _checked(kernel, spec.name, spec.type, given[spec.name])
        elif spec.required:
            raise ParameterError(kernel, spec.name, spec.type, "nothing")
        else:
            bound[spec.name] = spec.default
    if bound and (size := len(msgspec.msgpack.encode(bound))) > MAX_PARAMS_BYTES:
        raise ParameterError(kernel, "params", f"at most {MAX_PARAMS_BYTES} encoded bytes", f"{size}")
    return bound


def _type_name(annotation: Any) -> str | None:
    if isinstance(annotation, str):  # from __future__ import annotations: read the text, evaluate nothing
        text = annotation.replace(" ", "").removeprefix("typing.").removeprefix("collections.abc.")
        for outer in ("list[", "Sequence[", "List["):
            if text.startswith(outer) and text.endswith("]"):
                inner = text.removeprefix(outer)[:-1]
                return f"list[{inner}]" if inner in _SCALARS else None
        return text if text in _SCALARS else None
    if annotation in _SCALARS.values():
        return str(annotation.__name__)
    if get_origin(annotation) in (list, Sequence):
        (inner_type,) = get_args(annotation) or (None,)
        return f"list[{inner_type.__name__}]" if inner_type in _SCALARS.values() else None
    return None


def _checked(kernel: str, name: str, kind: str, value: Any) -> Any:
    if kind.startswith("list["):
        if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
            raise ParameterError(kernel, name, kind, type(value).__name__)
        return [_checked(kernel, name, kind[5:-1], element) for element in value]
    expected = _SCALARS[kind]
    # bool is an int to Python, and an int would lose its type on the way to a float: both are told apart here.
    if type(value) is not expected:
        raise ParameterError(kernel, name, kind, f"{type(value).__name__} {value!r}"[:200])
    if isinstance(value, int) and not -_INT_LIMIT <= value < _INT_LIMIT:
        raise ParameterError(kernel, name, "an int of 64 bits", str(value)[:60])
    return value
