"""Parameters of a run from ``--param K=V`` and ``TOWLINE_PARAM_K`` (MOD-22, MOD-23)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_type_hints

import msgspec

from towline.errors.configuration import ConfigurationError, UnknownNameError
from towline.identity import suggestion
from towline.masking import Secret

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

VARIABLE = "TOWLINE_PARAM_"


def params_of(kind: type[Any] | None, flags: Sequence[str], environ: Mapping[str, str]) -> Any:
    """Make the parameters of a run; ``None`` when nothing was given and the type's defaults hold.

    Raises:
        UnknownNameError: Names that the pipeline does not declare, all together.
        ConfigurationError: A value of the wrong form, a secret as a flag.
    """
    given = _from_flags(flags)
    variables = {
        name[len(VARIABLE) :].casefold(): value for name, value in environ.items() if name.startswith(VARIABLE)
    }
    if kind is None:
        if given:
            raise UnknownNameError("parameter", ", ".join(given), "this pipeline", "It declares no params=.")
        return None
    hints = get_type_hints(kind)
    names = {name.casefold(): name for name in hints}
    wrong = [name for name in given if name.casefold() not in names]
    wrong += [f"{VARIABLE}{name.upper()}" for name in variables if name not in names]
    if wrong:
        near = "".join(suggestion(name.removeprefix(VARIABLE).casefold(), names) for name in wrong[:1])
        known = f"It has {', '.join(sorted(hints))}."
        raise UnknownNameError("parameter", ", ".join(wrong), "this pipeline", known + near)
    texts = {names[name]: (value, f"{VARIABLE}{name.upper()}") for name, value in variables.items()}
    texts |= {names[name.casefold()]: (value, f"--param {name}") for name, value in given.items()}
    if not texts:
        return None
    values = {}
    for name, (text, source) in texts.items():
        if hints[name] is Secret:
            if source.startswith("--param"):
                advice = f"a secret would be seen in the process list: set the variable {VARIABLE}{name.upper()}"
                raise ConfigurationError(source, "***", "flag", advice)
            values[name] = Secret(text)
            continue
        values[name] = _value(hints[name], text, source)
    try:
        return kind(**values)
    except Exception as error:
        raise ConfigurationError(
            "--param", ", ".join(texts), "given", f"a {kind.__name__} cannot be made: {error}"
        ) from error


def _from_flags(flags: Sequence[str]) -> dict[str, str]:
    given = {}
    for flag in flags:
        name, equals, value = flag.partition("=")
        if not equals or not name:
            raise ConfigurationError("--param", flag, "flag", "write NAME=VALUE")
        given[name] = value
    return given


def _value(kind: Any, text: str, source: str) -> Any:
    """Read a text as a value of the declared type: as it is, or as JSON for lists and records."""
    try:
        return msgspec.convert(text, kind, strict=False)
    except msgspec.ValidationError as first:
        try:
            return msgspec.json.decode(text.encode(), type=kind)
        except (msgspec.MsgspecError, TypeError):
            raise ConfigurationError(
                source, text, "given", f"it is no {getattr(kind, '__name__', kind)}: {first}"
            ) from None
