"""The parameters of a run on their way to its workers; secrets stay where they are (DIST-08, SEC-02)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_type_hints

import msgspec

from towline.errors.configuration import RunParamsError
from towline.errors.declaration import DeclarationError
from towline.masking.secret import Secret
from towline.modules.parameters import VARIABLE, missing_parameters
from towline.pipeline.program import params_mapping

if TYPE_CHECKING:
    from collections.abc import Mapping

    from towline.pipeline.program import Program


def told_params(params: Any) -> msgspec.Raw:
    """Return what workers are told of the master's parameters: all but the secrets."""
    open_ones = {name: value for name, value in params_mapping(params).items() if not isinstance(value, Secret)}
    return msgspec.Raw(msgspec.json.encode(open_ones, enc_hook=repr))


def secret_variables(params: Any) -> dict[str, str]:
    """Return the secrets among the parameters as the environment of a process that works for the run."""
    return {
        f"{VARIABLE}{name.upper()}": value.reveal()
        for name, value in params_mapping(params).items()
        if isinstance(value, Secret)
    }


def params_of_run(program: Program, told: msgspec.Raw, given: Any, environ: Mapping[str, str]) -> Any:
    """Take the run's parameters, and this process's own secrets. Other own parameters may only repeat the run's.

    Raises:
        DeclarationError: They differ, or are not of the declared type.
        RunParamsError: A secret has no value here.
    """
    kind = program.params_type
    if kind is None:
        return program.params_for(given)
    values = msgspec.json.decode(told)
    own = params_mapping(given)
    for name, hint in get_type_hints(kind).items():
        if hint is Secret:
            secret = own.pop(name, None)
            text = secret.reveal() if isinstance(secret, Secret) else environ.get(f"{VARIABLE}{name.upper()}")
            if text is not None:
                values[name] = text
    missing = missing_parameters(kind, values)
    if missing is not None:
        raise RunParamsError(program.name, (f"{missing}, on this worker too",))
    try:
        params = msgspec.json.decode(msgspec.json.encode(values), type=kind, dec_hook=_secret)
    except msgspec.MsgspecError as error:
        raise DeclarationError(program.name, "params", "of the run", f"a {kind.__name__}: {error}") from error
    if any(value != getattr(params, name) for name, value in own.items()):
        raise DeclarationError(program.name, "params", own, "the run's, or none at all")
    return params


def _secret(kind: type, value: Any) -> Any:
    if kind is Secret:
        return Secret(value)
    raise NotImplementedError(f"no parameter can be a {kind.__name__}")
