"""Parameters of a run from ``--param K=V`` and ``TOWLINE_PARAM_K`` (MOD-22, MOD-23)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_type_hints

import msgspec

from towline.errors.configuration import RunParamsError
from towline.identity import suggestion
from towline.masking import Secret
from towline.modules.parameters import VARIABLE, missing_parameters, placeholder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def params_of(pipeline: str, kind: type[Any] | None, flags: Sequence[str], environ: Mapping[str, str]) -> Any:
    """Make the parameters of a run; ``None`` when nothing was given and the type's defaults hold.

    Raises:
        RunParamsError: Names that the pipeline does not declare, values of the wrong form, secrets as flags,
            parameters without value: all of them together, for each correction is a call of its own.
    """
    values, problems, named = _given(kind, flags, environ)
    missing = None if kind is None else missing_parameters(kind, named)
    if missing is not None:
        problems.append(missing)
    if problems:
        raise RunParamsError(pipeline, tuple(problems))
    if kind is None or not values:
        return None
    try:
        return kind(**values)
    except Exception as error:
        raise RunParamsError(
            pipeline, (f"a {kind.__name__} cannot be made of {', '.join(values)}: {error}",)
        ) from error


def own_params_of(
    pipeline: str, kind: type[Any] | None, flags: Sequence[str], environ: Mapping[str, str]
) -> dict[str, Any]:
    """Return the parameters that a worker was given, by name: its secrets, and what may only repeat the run's (DIST-08).

    Raises:
        RunParamsError: As for the parameters of a run; but the run has the others.
    """
    values, problems, _ = _given(kind, flags, environ)
    if problems:
        raise RunParamsError(pipeline, tuple(problems))
    return values


def _given(
    kind: type[Any] | None, flags: Sequence[str], environ: Mapping[str, str]
) -> tuple[dict[str, Any], list[str], set[str]]:
    """Read flags and variables; returns the values by name, what is wrong with others, and the names of both."""
    given, problems = _from_flags(flags)
    variables = {
        name[len(VARIABLE) :].casefold(): value for name, value in environ.items() if name.startswith(VARIABLE)
    }
    if kind is None:
        problems += [f"there is no parameter {name!r} in this pipeline: it declares no params=" for name in given]
        return {}, problems, set()
    hints = get_type_hints(kind)
    names = {name.casefold(): name for name in hints}
    problems += [_unknown(name, name, names) for name in given if name.casefold() not in names]
    problems += [_unknown(f"{VARIABLE}{name.upper()}", name, names) for name in variables if name not in names]
    texts = {names[name]: (value, f"{VARIABLE}{name.upper()}") for name, value in variables.items() if name in names}
    texts |= {
        names[name.casefold()]: (value, f"--param {name}") for name, value in given.items() if name.casefold() in names
    }
    values: dict[str, Any] = {}
    for name, (text, source) in texts.items():
        try:
            values[name] = _value(name, hints[name], text, source)
        except ValueError as error:
            problems.append(str(error))
    return values, problems, set(texts)


def _unknown(shown: str, name: str, names: Mapping[str, str]) -> str:
    near = suggestion(name.casefold(), names)
    return f"there is no parameter {shown!r} in this pipeline, which has {', '.join(sorted(names.values()))}.{near}"


def _from_flags(flags: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    given, problems = {}, []
    for flag in flags:
        name, equals, value = flag.partition("=")
        if equals and name:
            given[name] = value
        else:
            problems.append(f"--param {flag}: write NAME=VALUE")
    return given, problems


def _value(name: str, kind: Any, text: str, source: str) -> Any:
    """Read a text as a value of the declared type: as it is, or as JSON for lists and records.

    Raises:
        ValueError: It is none, or a secret as a flag; the text says what to write.
    """
    if kind is Secret:
        if source.startswith("--param"):
            raise ValueError(
                f"{source} is a secret, which would be seen in the process list: set the variable {VARIABLE}{name.upper()}"
            )
        return Secret(text)
    try:
        return msgspec.convert(text, kind, strict=False)
    except msgspec.ValidationError:
        try:
            return msgspec.json.decode(text.encode(), type=kind)
        except (msgspec.MsgspecError, TypeError):
            wanted = getattr(kind, "__name__", str(kind))
            raise ValueError(f"{source} is {text}, which is no {wanted}: write {name}={placeholder(kind)}") from None
