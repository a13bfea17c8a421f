"""The code that a cached result depends on: the program's own source files, as syntax trees (CACHE-03).

Comments, layout and docstrings are no part of a tree: they never cost a run. Everything else is, also in
files that a module merely imports: a changed constant or helper always costs one. Installed packages are
not looked at: name them by ``key`` or by a lock file among the ``inputs``.
"""

from __future__ import annotations

import ast
import os
import sys
from hashlib import sha256
from typing import TYPE_CHECKING

import towline

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import ModuleType

_INSTALLED = ("site-packages", "dist-packages")


def program_files(root: Path, modules: Mapping[str, ModuleType] | None = None) -> list[str]:
    """Return the loaded source files below the program's root, sorted, without installed packages.

    Args:
        root: The directory that goes first on ``sys.path``.
        modules: Loaded modules by name; those of this process if not given.
    """
    real_root = os.path.realpath(root)
    own = os.path.dirname(os.path.abspath(towline.__file__))
    found = set()
    for module in list((sys.modules if modules is None else modules).values()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not file.endswith(".py"):
            continue
        real = os.path.realpath(file)
        if real.startswith(real_root + os.sep) and not real.startswith(own + os.sep):
            inside = os.path.relpath(real, real_root)
            if not any(part in _INSTALLED for part in inside.split(os.sep)):
                found.add(real)
    return sorted(found)


def code_digests(root: Path, files: list[str]) -> dict[str, str]:
    """Return a digest per file, by its path relative to the root. Blocking: run it in a thread."""
    real_root = os.path.realpath(root)
    digests = {}
    for file in files:
        with open(file, "rb") as source:
            digests[os.path.relpath(file, real_root).replace(os.sep, "/")] = source_digest(source.read())
    return digests


def source_digest(source: bytes) -> str:
    """Digest Python source by its syntax tree without docstrings; text that is no Python by its bytes."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return sha256(source).hexdigest()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            value = first.value if isinstance(first, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                del node.body[0]
    return sha256(ast.dump(tree, annotate_fields=False).encode("utf-8", "surrogatepass")).hexdigest()
