"""The version of a module's code: a digest of its own source text (MOD-29).

Each file is read and parsed once, and a module's text looked up by its line: ``inspect.getsource`` tokenizes
the file again for every function, 373 µs each.
"""

from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING

import msgspec

from towline.identity import digest_of

if TYPE_CHECKING:
    import ast

    from towline.modules.spec import ModuleSpec


def code_version(spec: ModuleSpec) -> str:
    """Return the declared ``version``, or the digest of the module's own source text.

    The text is dedented, its line ends are normalised, and decorators belong to it. Empty when there is no
    source to read: a REPL, ``-c``, code made by ``exec``.
    """
    if spec.settings.version is not None:
        return spec.settings.version
    if spec.source is None:
        return ""
    lines, spans = _read(spec.source.file)
    span = spans.at(spec.source.line, is_class=spec.kind == "class")
    if span is None:
        return ""
    digest = spans.digests.get(span)
    if digest is None:
        digest = spans.digests[span] = digest_of(_dedented(lines, span).encode("utf-8", "surrogatepass"))
    return digest


class CodeVersions:
    """The versions of the modules of one plan: modules that stand at one place, as those made in a loop, share theirs."""

    def __init__(self) -> None:
        self._by_place: dict[tuple[str, int, str], str] = {}

    def of(self, spec: ModuleSpec) -> str:
        """Return what :func:`code_version` says of a module."""
        source = spec.source
        if source is None or spec.settings.version is not None:
            return code_version(spec)
        place = (source.file, source.line, spec.kind)
        version = self._by_place.get(place)
        if version is None:
            version = self._by_place[place] = code_version(spec)
        return version


def source_text(spec: ModuleSpec) -> str | None:
    """Return the source text of a function or class module, dedented; ``None`` when it cannot be read."""
    if spec.source is None:
        return None
    lines, spans = _read(spec.source.file)
    span = spans.at(spec.source.line, is_class=spec.kind == "class")
    return None if span is None else _dedented(lines, span)


def _dedented(lines: list[str], span: tuple[int, int]) -> str:
    text = "".join(lines[span[0] - 1 : span[1]])
    return dedent(text.replace("\r\n", "\n").replace("\r", "\n")).rstrip() + "\n"


class _Spans(msgspec.Struct, frozen=True):
    """Where definitions stand in one file: first to last line, from 1, by each line of their heading.

    ``digests`` holds those that were asked for: modules that one function makes in a loop share theirs.
    """

    functions: dict[int, tuple[int, int]]
    classes: dict[int, tuple[int, int]]
    digests: dict[tuple[int, int], str]

    def at(self, line: int, *, is_class: bool) -> tuple[int, int] | None:
        return (self.classes if is_class else self.functions).get(line)


_NO_SPANS = _Spans({}, {}, {})

_files: dict[str, tuple[list[str], _Spans]] = {}
"""What was read of each file, while its lines are the same list in ``linecache``: a reload makes a new one."""


def _read(file: str) -> tuple[list[str], _Spans]:
    import linecache  # knows what was loaded, notebook cells included, where the file may have changed since

    lines = linecache.getlines(file)
    if not lines:
        return lines, _NO_SPANS  # no such file: there is no list that would stay the same
    known = _files.get(file)
    if known is None or known[0] is not lines:
        known = _files[file] = (lines, _parsed("".join(lines)))
    return known


def _parsed(text: str) -> _Spans:
    import ast

    spans = _Spans({}, {}, {})
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):  # the file was changed after it was loaded, or is no Python at all
        return spans
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            _note(spans.classes, node, node.body[0].lineno)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            _note(spans.functions, node, node.lineno + 1)
        elif isinstance(node, ast.Lambda):
            spans.functions.setdefault(node.lineno, (node.lineno, node.end_lineno or node.lineno))
    return spans


def _note(
    spans: dict[int, tuple[int, int]], node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, stop: int
) -> None:
    """Enter a definition for every line at which Python may say that it begins: decorators, ``class``, its bases."""
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    for line in range(first, max(stop, first + 1)):
        spans[line] = (first, node.end_lineno or node.lineno)
