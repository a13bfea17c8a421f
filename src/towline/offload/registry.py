"""The kernels of a process by name, and how a module or file gives its own (OFF-102, OFF-114)."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from towline.errors.offload import DuplicateKernelError, KernelDeclarationError, UnknownKernelError
from towline.identity import suggestion
from towline.offload.kernels import Kernel, KernelFunction

if TYPE_CHECKING:
    from types import ModuleType
    from typing import Self

MAX_KERNELS = 10_000


class KernelRegistry:
    """Kernels by name. The order of registration does not matter: ``names`` is sorted."""

    def __init__(self) -> None:
        self._functions: dict[str, KernelFunction[...]] = {}

    def register(self, kernel: KernelFunction[...]) -> None:
        """Add a kernel; the same function again changes nothing.

        Raises:
            DuplicateKernelError: Another function has this name.
        """
        known = self._functions.get(kernel.kernel.name)
        if known is not None and _place(known) != _place(kernel):
            raise DuplicateKernelError(kernel.kernel.name, _described(known), _described(kernel))
        if known is None and len(self._functions) >= MAX_KERNELS:
            raise KernelDeclarationError(kernel.kernel.name, "registry", f"is full: it holds {MAX_KERNELS} kernels")
        self._functions[kernel.kernel.name] = kernel

    def get(self, name: str) -> Kernel:
        """Return the record of a kernel.

        Raises:
            UnknownKernelError: Nobody has the name; near names are shown.
        """
        return self.function(name).kernel

    def function(self, name: str) -> KernelFunction[...]:
        """Return the function of a kernel; raises ``UnknownKernelError`` as ``get`` does."""
        found = self._functions.get(name)
        if found is None:
            raise UnknownKernelError(name, suggestion(name, self._functions), len(self._functions))
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._functions

    def names(self) -> tuple[str, ...]:
        """Return all names, sorted."""
        return tuple(sorted(self._functions))

    @classmethod
    def from_module(cls, target: str) -> Self:
        """Import ``file.py`` or ``package.module`` and take the kernels that it declares or imports.

        Raises:
            UnknownKernelError: It has none.
            ImportError: It cannot be imported; ``FileNotFoundError`` when there is no such file.
        """
        module = load_module(target)
        registry = cls()
        for value in vars(module).values():
            if isinstance(value, KernelFunction):
                registry.register(value)
        home = module.__name__ if not module.__name__.startswith("towline_kernels.") else str(module.__file__)
        for function in DEFAULT_REGISTRY._functions.values():
            if function.kernel.home == home:
                registry.register(function)
        return registry


DEFAULT_REGISTRY = KernelRegistry()
"""Where ``@kernel`` registers and where a runtime looks, unless told otherwise."""


def load_module(target: str) -> ModuleType:
    """Import a module by name, or a file under a name of its own, so that its ``__main__`` part does not run."""
    if not target.endswith(".py"):
        return importlib.import_module(target)
    path = Path(target).resolve()
    if not path.is_file():
        raise FileNotFoundError(2, "there is no such file", str(path))
    main = sys.modules.get("__main__")
    if main is not None and getattr(main, "__file__", None) and Path(str(main.__file__)).resolve() == path:
        return main
    name = f"towline_kernels.{path.stem}"
    known = sys.modules.get(name)
    if known is not None and known.__file__ == str(path):
        return known
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be loaded as a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    folder = str(path.parent)
    if folder not in sys.path:  # a script finds its neighbours; so does a worker that loads it
        sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _place(function: KernelFunction[...]) -> tuple[Any, str]:
    code = getattr(function.function, "__code__", None)
    return (code.co_filename if code is not None else function.kernel.home, function.kernel.qualname)


def _described(function: KernelFunction[...]) -> str:
    return f"{function.kernel.qualname or function.__name__} in {_place(function)[0]}"
