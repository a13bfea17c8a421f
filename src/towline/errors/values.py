"""Errors around values that bodies return and nodes exchange."""

from __future__ import annotations

from towline.errors.root import TowlineError


class ValueTravelError(TowlineError):
    """A value cannot be stored or sent as its module declares it."""

    def for_module(self, module: str) -> ValueTravelError:
        """Return the same error with the module's name in it, where it has a place for one."""
        return self


class ResultTypeError(ValueTravelError):
    """A type has no JSON form, or a value is not what its module declares (SER-02, SER-04, SER-05).

    ``declared`` and ``actual`` are type names; ``actual`` is empty when the declared type itself is refused.
    ``path`` leads to the place in the type (``result.files[]``) or the value (``value.files[3].size``).
    ``module`` is empty while the codec, which does not know it, is the one that raises.
    """

    def __init__(self, module: str, declared: str, actual: str, path: str, hint: str = "") -> None:
        super().__init__(module, declared, actual, path, hint)
        self.module, self.declared, self.actual, self.path, self.hint = module, declared, actual, path, hint

    def for_module(self, module: str) -> ResultTypeError:
        """Return the same error with the module's name in it."""
        return ResultTypeError(module, self.declared, self.actual, self.path, self.hint)

    def __str__(self) -> str:
        who = f"module {self.module!r}" if self.module else "a module"
        if not self.actual:
            advice = self.hint or "Declare a type that JSON can hold, or return a path, artifact or buffer."
            return f"{who}: {self.path} is declared as {self.declared}, which has no JSON form. {advice}"
        advice = self.hint or "Correct the body or the declared type."
        if self.path == "value":
            return f"{who} returned {self.actual} but declares {self.declared}. {advice}"
        return f"{who}: {self.path} is {self.actual} but {self.declared} is declared. {advice}"


class ResultTooLargeError(ValueTravelError):
    """An encoded value is above the limit (SER-09). Sizes are bytes."""

    def __init__(self, module: str, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(module, size_bytes, limit_bytes)
        self.module, self.size_bytes, self.limit_bytes = module, size_bytes, limit_bytes

    def for_module(self, module: str) -> ResultTooLargeError:
        """Return the same error with the module's name in it."""
        return ResultTooLargeError(module, self.size_bytes, self.limit_bytes)

    def __str__(self) -> str:
        who = f"the result of module {self.module!r}" if self.module else "an encoded value"
        return (
            f"{who} takes {self.size_bytes:,} bytes as JSON, more than {self.limit_bytes:,}: "
            "write it to a file and produce an artifact."
        )


class SerializationError(ValueTravelError):
    """A value cannot be encoded, or bytes are not the declared value; ``path`` is like ``value.files[3].size``."""

    def __init__(self, path: str, detail: str, module: str = "") -> None:
        super().__init__(path, detail, module)
        self.path, self.detail, self.module = path, detail, module

    def for_module(self, module: str) -> SerializationError:
        """Return the same error with the module's name in it."""
        return SerializationError(self.path, self.detail, module)

    def __str__(self) -> str:
        who = f"module {self.module!r}: " if self.module else ""
        return (
            f"{who}{self.path}: {self.detail}. Check that both sides run the same program, and what the body returns."
        )


class RemoteModuleError(ValueTravelError):
    """An error of another process whose type is not rebuilt here; says all that is known of it (SER-14).

    ``traceback`` is the text of the whole remote traceback, causes and group members included.
    """

    def __init__(self, type_name: str, text: str, traceback: str = "", worker_id: str | None = None) -> None:
        super().__init__(type_name, text, traceback, worker_id)
        self.type_name, self.text, self.traceback, self.worker_id = type_name, text, traceback, worker_id

    def __str__(self) -> str:
        where = f" (on {self.worker_id})" if self.worker_id else ""
        return f"{self.type_name}: {self.text}{where}" if self.text else f"{self.type_name}{where}"
