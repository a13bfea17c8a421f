"""A value that shows as ``***``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, final

from towline.errors.secrets import SecretMissingError, SecretTravelError

if TYPE_CHECKING:
    from collections.abc import Mapping

MASK = "***"


@final
class Secret:
    """A secret text: ``***`` in ``str``, ``repr`` and formats; only ``reveal()`` gives it (SEC-02).

    It has no JSON form and cannot be pickled: a secret never leaves its process.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the value itself."""
        return self._value

    def __repr__(self) -> str:
        return MASK

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return MASK

    def __bool__(self) -> bool:
        return bool(self._value)

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Secret:
        return self

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise SecretTravelError("pickled")

    def __init_subclass__(cls) -> None:
        raise TypeError("Secret is final: a subclass could show the value")


def read_secret(name: str, environ: Mapping[str, str]) -> str:
    """Return the secret's value from variable ``NAME`` or ``TOWLINE_SECRET_NAME`` (SEC-01).

    Raises:
        SecretMissingError: Neither is set, or both are empty.
    """
    value = environ.get(name) or environ.get(f"TOWLINE_SECRET_{name}")
    if not value:
        raise SecretMissingError(name)
    return value
