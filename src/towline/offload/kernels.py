"""Named functions that every node has: their declaration and their record (OFF-101 to OFF-104)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeAlias
from typing import ParamSpec as TypingParamSpec

import msgspec

from towline.errors.offload import KernelDeclarationError
from towline.offload.arrays import Array
from towline.offload.parameters import ParamSpec, declared_arrays, declared_params
from towline.offload.records import Param

if TYPE_CHECKING:
    from random import Random

    from towline.offload.registry import KernelRegistry

P = TypingParamSpec("P")

KERNEL_NAME = re.compile(r"[a-z0-9._-]{1,200}\Z")
_MAX_VERSION = (1 << 32) - 1


class Tolerant(msgspec.Struct, frozen=True, kw_only=True):
    """How far two runs of a kernel may differ: ``|a - b| <= atol + rtol * |b|``, NaN equal to NaN."""

    rtol: float
    atol: float


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs on which a worker proves that it computes what the master computes (OFF-420). At most 1 MiB of arrays."""

    reads: Sequence[Array]
    writes: Sequence[tuple[tuple[int, ...], str]]
    params: Mapping[str, Param] = {}


Determinism: TypeAlias = Literal["bitwise", "unchecked"] | Tolerant


class Kernel(msgspec.Struct, frozen=True, kw_only=True):
    """The record of one kernel. ``signature`` is equal on two nodes exactly if their declarations agree."""

    name: str
    version: int
    reads: int
    writes: int
    params: tuple[ParamSpec, ...] = ()
    determinism: Determinism = "bitwise"
    executor: Literal["process", "thread"] = "process"
    time_limit_s: float | None = None
    min_offload_bytes: int | None = None
    overwrites: bool = False
    variadic: bool = False
    device: Literal["cpu", "cuda"] = "cpu"
    home: str = ""
    qualname: str = ""
    signature: str = ""
    splits: bool = False
    """The declaration tells inputs from outputs, so each count is enforced, not the sum alone."""


class KernelFunction(Generic[P]):
    """A function with its kernel record; calling it calls the function."""

    kernel: Kernel

    def __init__(self, function: Callable[P, None], kernel: Kernel, probe: Callable[[Random], Probe] | None) -> None:
        self.kernel = kernel
        self.function = function
        self.probe = probe
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", kernel.name)
        self.__module__ = function.__module__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<kernel {self.kernel.name} version {self.kernel.version} of {self.kernel.home}>"


KernelRef: TypeAlias = KernelFunction[...] | str


class _DeclareKernel(Protocol):
    def __call__(self, function: Callable[P, None], /) -> KernelFunction[P]: ...


def kernel(
    name: str,
    *,
    version: int = 1,
    determinism: Determinism = "bitwise",
    executor: Literal["process", "thread"] = "process",
    time_limit_s: float | None = None,
    min_offload_bytes: int | None = None,
    overwrites: bool = False,
    variadic: bool = False,
    device: Literal["cpu", "cuda"] = "cpu",
    probe: Callable[[Random], Probe] | None = None,
    registry: KernelRegistry | None = None,
) -> _DeclareKernel:
    """Name a function that every node has: arrays by position, parameters by keyword, no result.

    Inputs come first and are read-only, outputs after them, zero-filled. The function keeps no reference
    to an array after it returned.

    Args:
        name: 1 to 200 of ``a-z 0-9 . _ -``; all that travels of the code.
        version: Raise it when the function computes something else: nodes with another one are not used.
        determinism: ``bitwise`` (same inputs, same bytes, anywhere), ``unchecked``, or a tolerance.
        executor: ``process`` runs it apart; ``thread`` declares that it releases the GIL.
        time_limit_s: Longest run in seconds; then it is stopped and fails. None: no limit.
        min_offload_bytes: Smallest payload that leaves this process; None: as the options say; 0: any.
        overwrites: It writes every element, so its outputs need not be zero-filled.
        variadic: It takes ``(reads, writes, *, …)`` with two lists of arrays.
        device: Where its arrays live.
        probe: Makes inputs for the check that a joining worker must pass.
        registry: Where it is registered; None: the registry that every runtime uses by default.

    Raises:
        KernelDeclarationError: The declaration cannot work; it names the field.
        DuplicateKernelError: Another function has this name.
    """
    _check(name, version, determinism, executor, time_limit_s, min_offload_bytes, device)

    def declare(function: Callable[P, None], /) -> KernelFunction[P]:
        from towline.offload.registry import DEFAULT_REGISTRY

        qualname = getattr(function, "__qualname__", "")
        if executor == "process" and "<" in qualname:
            raise KernelDeclarationError(
                name, "executor", f"is 'process', and {qualname} is nested: a child process cannot import it; "
                "move it to the top of its file, or declare executor='thread'",
            )  # fmt: skip
        reads, writes = declared_arrays(function, name, variadic)
        params = declared_params(function, name)
        record = Kernel(
            name=name, version=version, reads=reads, writes=writes, params=params, determinism=determinism,
            executor=executor, time_limit_s=time_limit_s, min_offload_bytes=min_offload_bytes, overwrites=overwrites,
            variadic=variadic, device=device, home=home_of(function), qualname=qualname,
            signature=_signature(name, version, reads + writes, params, determinism, overwrites, variadic, device),
            splits=not variadic and _has_separator(function),
        )  # fmt: skip
        declared = KernelFunction(function, record, probe)
        (DEFAULT_REGISTRY if registry is None else registry).register(declared)
        return declared

    return declare


def home_of(function: Callable[..., Any]) -> str:
    """Return where a child process finds the function: a module name, or a file for a script (OFF-114)."""
    module = function.__module__
    if module == "__main__" or module.startswith("towline_kernels."):
        return function.__code__.co_filename if hasattr(function, "__code__") else module
    return module


def _has_separator(function: Callable[..., Any]) -> bool:
    code = function.__code__ if hasattr(function, "__code__") else None
    return code is not None and 0 < code.co_posonlyargcount < code.co_argcount


def _signature(*parts: object) -> str:
    return sha256(msgspec.json.encode(parts)).hexdigest()[:32]


def _check(
    name: object, version: object, determinism: object, executor: object, time_limit_s: float | None,
    min_offload_bytes: int | None, device: object,
) -> None:  # fmt: skip
    if not isinstance(name, str) or not KERNEL_NAME.match(name):
        raise KernelDeclarationError(str(name)[:220], "name", "must be 1 to 200 of a-z 0-9 . _ -")
    if type(version) is not int or not 1 <= version <= _MAX_VERSION:
        raise KernelDeclarationError(name, "version", f"is {version!r}; it must be an int from 1 to 2**32 - 1")
    if determinism not in ("bitwise", "unchecked") and not isinstance(determinism, Tolerant):
        raise KernelDeclarationError(name, "determinism", f"is {determinism!r}; use 'bitwise', 'unchecked' or Tolerant")
    if executor not in ("process", "thread"):
        raise KernelDeclarationError(name, "executor", f"is {executor!r}; use 'process' or 'thread'")
    if device not in ("cpu", "cuda"):
        raise KernelDeclarationError(name, "device", f"is {device!r}; use 'cpu' or 'cuda'")
    if time_limit_s is not None and not 0 < time_limit_s < float("inf"):
        raise KernelDeclarationError(name, "time_limit_s", f"is {time_limit_s!r}; it must be seconds above 0")
    if min_offload_bytes is not None and min_offload_bytes < 0:
        raise KernelDeclarationError(name, "min_offload_bytes", f"is {min_offload_bytes}; it must be 0 or more")
