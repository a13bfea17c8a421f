"""Which clauses the spec has, which tests prove them, and which are open. Run as a program it rewrites the open list.

The spec pages under docs/spec are the only source of ids. A clause without a test stands in ``open_clauses.txt``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from structure.repository import LIBRARY, SPEC, TESTS, python_files, tree_of

OPEN_LIST = Path(__file__).with_name("open_clauses.txt")
HEADER = """\
# Clauses of docs/spec that no test proves yet: not built, not tested, or left out (docs/decisions says why).
# `python -m structure.clauses` in tests/ rewrites this list; the check fails for a line that became untrue.
"""

_DEFINED = re.compile(r"^\s*-\s+(?:\*\*)?([A-Z]+-[A-Z]?\d+)\b", re.MULTILINE)
_MENTIONED = re.compile(r"\b([A-Z]{2,5}-[A-Z]?\d{2,3})\b")


def defined() -> set[str]:
    """Return the ids of all clauses of the spec."""
    return {clause for page in SPEC.glob("*.md") for clause in _DEFINED.findall(page.read_text(encoding="utf-8"))}


def claimed() -> dict[str, list[str]]:
    """Return clause id -> tests that are marked ``@clause(id)``, as ``file::name``."""
    found: dict[str, list[str]] = {}
    for file in python_files(TESTS):
        for node in ast.walk(tree_of(file)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                for clause in _marks(node):
                    found.setdefault(clause, []).append(f"{file.relative_to(TESTS)}::{node.name}")
    return found


def _marks(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> Iterator[str]:
    for mark in node.decorator_list:
        if isinstance(mark, ast.Call) and isinstance(mark.func, ast.Name) and mark.func.id == "clause":
            for argument in mark.args:
                if isinstance(argument, ast.Constant):
                    yield str(argument.value)


def kit_claims() -> set[str]:
    """Return the ids that contract kits in the library prove: their cases are marked there and run by the tests."""
    found: set[str] = set()
    for file in python_files(LIBRARY / "testing"):
        for node in ast.walk(tree_of(file)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found.update(_marks(node))
    return found


def mentioned() -> dict[str, set[str]]:
    """Return clause-like ids in library code -> the files that name them."""
    found: dict[str, set[str]] = {}
    for file in python_files(LIBRARY):
        for clause in _MENTIONED.findall(file.read_text(encoding="utf-8")):
            found.setdefault(clause, set()).add(str(file.relative_to(LIBRARY)))
    return found


def listed_open() -> list[str]:
    """Return the ids of the open list."""
    lines = OPEN_LIST.read_text(encoding="utf-8").splitlines()
    return [clause for line in lines if not line.startswith("#") for clause in line.split()]


def _order(clause: str) -> tuple[str, int]:
    group, number = re.fullmatch(r"(.*?)(\d+)", clause).groups()  # type: ignore[union-attr]
    return group, int(number)


def main() -> None:
    """Write the open list anew from what is proven now."""
    still_open = sorted(defined() - set(claimed()) - kit_claims(), key=_order)
    groups: dict[str, list[str]] = {}
    for clause in still_open:
        groups.setdefault(_order(clause)[0], []).append(clause)
    lines = [" ".join(group[start : start + 10]) for group in groups.values() for start in range(0, len(group), 10)]
    OPEN_LIST.write_text(HEADER + "\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(still_open)} of {len(defined())} clauses are open")


if __name__ == "__main__":
    main()
