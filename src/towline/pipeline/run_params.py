"""The parameters of a run on their way to its workers; secrets stay where they are (DIST-08, SEC-07)."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import msgspec

from towline.errors.configuration import RunParamsError
from towline.errors.declaration import DeclarationError
from towline.masking.secret import MASK, Secret
from towline.modules.parameters import VARIABLE, missing_parameters
from towline.pipeline.program import params_mapping

if TYPE_CHECKING:
    from towline.pipeline.program import Program


def told_params(params: Any) -> msgspec.Raw:
    """Return what workers are told of the master's parameters: of a secret only that it has one of its own.

    Raises:
        DeclarationError: A value has no JSON form, so no worker could take it over.
    """
    if params is None:
        return msgspec.Raw(b"{}")
    declared = signature(type(params)).parameters
    told = {
        name: MASK if isinstance(value, Secret) else value
        for name, value in params_mapping(params).items()
        if name in declared and not _is_default_secret(value, declared[name].default)
    }
    try:
        return msgspec.Raw(msgspec.json.encode(told, enc_hook=_plain))
    except (TypeError, ValueError) as error:
        allowed = f"values with a JSON form, for workers take them over: {error}"
        raise DeclarationError(type(params).__name__, "params", sorted(told), allowed) from error


def own_secrets(params: Any) -> dict[str, str]:
    """Return the values of the secrets among the parameters, for a process that this one starts and trusts."""
    return {name: value.reveal() for name, value in params_mapping(params).items() if isinstance(value, Secret)}


def params_of_run(program: Program, told: msgspec.Raw, given: Any, environ: Mapping[str, str]) -> Any:
    """Take the run's parameters, and this process's own secrets. Other own parameters may only repeat the run's.

    Args:
        program: Declares the parameters.
        told: What :func:`told_params` made at the master.
        given: This process's own: a record of the declared type, or by name what a command line gave.
        environ: Where secrets are that ``given`` does not have.

    Raises:
        DeclarationError: They differ, or are not of the declared type.
        RunParamsError: The master has a secret of its own, or one is required, and it has no value here.
    """
    kind = program.params_type
    if kind is None:
        return program.params_for(given or None)
    own = dict(given) if isinstance(given, Mapping) else params_mapping(given)
    hints = get_type_hints(kind)
    values: dict[str, Any] = msgspec.json.decode(told)
    lacking = []
    for name, hint in hints.items():
        if not _may_be_secret(hint):
            continue
        secret, text = own.pop(name, None), environ.get(f"{VARIABLE}{name.upper()}")
        if isinstance(secret, Secret) or text is not None:
            values[name] = secret if isinstance(secret, Secret) else Secret(text or "")
        elif values.get(name) == MASK:
            lacking.append(f"{name} is a secret, which stays at the master: set {VARIABLE}{name.upper()} here too")
    missing = missing_parameters(kind, values)
    if lacking or missing is not None:
        raise RunParamsError(
            program.name, (*lacking, *(() if missing is None else (f"{missing}, on this worker too",)))
        )
    try:
        values = {name: _converted(value, hints[name]) for name, value in values.items()}
        params = kind(**values)
    except (KeyError, TypeError, ValueError) as error:
        raise DeclarationError(program.name, "params", "of the run", f"a {kind.__name__}: {error}") from error
    if any(value != getattr(params, name) for name, value in own.items()):
        raise DeclarationError(program.name, "params", own, "the run's, or none at all")
    return params


def _may_be_secret(hint: Any) -> bool:
    return hint is Secret or Secret in get_args(hint)


def _is_default_secret(value: Any, default: Any) -> bool:
    """Whether a worker comes to the same secret by itself."""
    return isinstance(value, Secret) and isinstance(default, Secret) and value.reveal() == default.reveal()


def _converted(value: Any, hint: Any) -> Any:
    return value if isinstance(value, Secret) else msgspec.convert(value, hint, dec_hook=_lifted)


def _plain(value: Any) -> Any:
    """Give a JSON form to what msgspec does not know: paths, and pydantic models."""
    if isinstance(value, PurePath):
        return str(value)
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json")
    raise TypeError(f"a {type(value).__name__} has none")


def _lifted(kind: Any, value: Any) -> Any:
    if isinstance(kind, type) and issubclass(kind, PurePath):
        return kind(value)
    validate = getattr(kind, "model_validate", None)
    if callable(validate):
        return validate(value)
    raise TypeError(f"no parameter can be a {getattr(kind, '__name__', kind)}")
