"""Where a program comes from, and loading it by that name: never by pickling (MOD-24 to MOD-28, CLI-01)."""

from __future__ import annotations

import os
import re
import sys
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from towline.clock import SystemClock
from towline.errors.declaration import TargetLoadError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from towline.clock import Clock

DEFAULT_ATTRIBUTE = "pipeline"
SLOW_IMPORT_S = 10.0

_ATTRIBUTE = re.compile(r"(?s)(.+):([A-Za-z_][A-Za-z0-9_]*)\Z")
_PACKAGE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*\Z")

_loading: ContextVar[str | None] = ContextVar("towline_loading_target", default=None)


class TargetRef(msgspec.Struct, frozen=True, kw_only=True):
    """Names the Python object that is a program, so that any process can load it.

    ``path_or_name``: the absolute path of a file, or the dotted name of a package's module. ``attribute``:
    the global bound to the pipeline; ``None`` is ``pipeline``, else the only one there is. ``root``: the
    folder that goes first on ``sys.path``.
    """

    kind: Literal["file", "package"]
    path_or_name: str
    attribute: str | None = None
    root: str

    def __str__(self) -> str:
        return f"{self.path_or_name}:{self.attribute}" if self.attribute else self.path_or_name

    @property
    def module_name(self) -> str:
        """The name under which Python imports it: a file goes by its stem."""
        if self.kind == "package":
            return self.path_or_name
        return os.path.splitext(os.path.basename(self.path_or_name))[0]


def parse_target(text: str, *, folder: str | None = None) -> TargetRef:
    """Read ``file.py[:name]`` or ``package.module[:name]`` (CLI-01).

    Split at the last ``:`` only if an identifier follows, so that a Windows drive is no separator. Paths are
    relative to ``folder``, by default the working directory, which is also the root of a package.

    Raises:
        TargetLoadError: It is neither a Python file nor a dotted name.
    """
    folder = os.path.abspath(folder or os.getcwd())
    match = _ATTRIBUTE.match(text)
    where, attribute = (match[1], match[2]) if match else (text, None)
    if match and len(match[1]) == 1 and not _PACKAGE.match(f"{match[1]}.x"):
        where, attribute = text, None
    if where.endswith(".py") or "/" in where or os.sep in where:
        path = os.path.abspath(os.path.join(folder, where))
        return TargetRef(kind="file", path_or_name=path, attribute=attribute, root=os.path.dirname(path))
    if not _PACKAGE.match(where):
        raise TargetLoadError(
            text, "it names no file and no module", "Write file.py, file.py:name, or package.module:name."
        )
    return TargetRef(kind="package", path_or_name=where, attribute=attribute, root=folder)


def target_of(value: object, module_name: str = "__main__") -> TargetRef | None:
    """Derive how other processes can load this object: the global of a Python module that is bound to it (MOD-25).

    ``None`` when they cannot: it lives in a notebook, a REPL, ``-c`` or stdin (MOD-27), or in no global.
    """
    module = sys.modules.get(module_name)
    attribute = next((name for name, bound in vars(module).items() if bound is value), None) if module else None
    if module is None or attribute is None:
        return None
    spec = getattr(module, "__spec__", None)
    if spec is not None and "." in spec.name:  # imported, or run by python -m package.module
        return TargetRef(kind="package", path_or_name=spec.name, attribute=attribute, root=_root_of(module, spec.name))
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or not file.endswith(".py") or not os.path.isfile(file):
        return None
    path = os.path.abspath(file)
    return TargetRef(kind="file", path_or_name=path, attribute=attribute, root=os.path.dirname(path))


def load_target(target: TargetRef, *, clock: Clock | None = None) -> Any:
    """Import the target and return the object that it names.

    The root goes first on ``sys.path`` and stays there, so that another file's import of the same name meets
    the same objects. Warns, by logging, of an import that reads stdin or takes more than 10 s (MOD-28).

    Raises:
        TargetLoadError: There is no such file or attribute, its name is taken by another file, or importing
            it raised; then the text holds the traceback of the user's own frames.
    """
    return _attribute_of(_imported(target, clock or SystemClock()), target)


def refuse_while_loading(call: str) -> None:
    """Refuse to start a run from the body of a file that is being loaded as a target (MOD-26).

    Raises:
        TargetLoadError: With the guard to write.
    """
    target = _loading.get()
    if target is not None:
        hint = 'Guard it with `if __name__ == "__main__":`, or every process that loads the file would start a run of its own.'
        raise TargetLoadError(target, f"it calls {call} while it is being imported", hint)


def _imported(target: TargetRef, clock: Clock) -> ModuleType:
    from importlib import import_module

    _check_exists(target)
    if target.root not in sys.path[:1]:
        sys.path.insert(0, target.root)
    _check_not_taken(target)
    token = _loading.set(str(target))
    begun, stdin = clock.monotonic(), _WatchedStdin(sys.stdin)
    sys.stdin = stdin
    try:
        module = import_module(target.module_name)
    except TargetLoadError:
        raise
    except (Exception, SystemExit) as error:
        raise _import_failed(target, error) from error
    finally:
        _loading.reset(token)
        if sys.stdin is stdin:
            sys.stdin = stdin.watched
    _warn(target, clock.monotonic() - begun, has_read=stdin.has_read)
    return module


def _check_exists(target: TargetRef) -> None:
    if target.kind == "file" and not os.path.isfile(target.path_or_name):
        raise TargetLoadError(
            str(target), "there is no such file", "Check the path; it is relative to the working directory."
        )


def _check_not_taken(target: TargetRef) -> None:
    """Refuse a stem that Python already uses, or would use, for another file (MOD-24)."""
    if target.kind != "file":
        return
    from importlib.util import find_spec

    stem = target.module_name
    loaded = sys.modules.get(stem)
    if loaded is not None:
        taken_by = getattr(loaded, "__file__", None) or "a module that is built into Python"
    else:
        found = find_spec(stem)
        taken_by = found.origin if found is not None and found.origin else None
        if taken_by is None:
            raise TargetLoadError(
                str(target), f"Python does not find {stem!r} in {target.root}", "Rename the file to a Python name."
            )
    if not _is_same_file(taken_by, target.path_or_name):
        cause = f"the name {stem!r} is taken by {taken_by}, so {target.path_or_name} cannot be imported by it"
        raise TargetLoadError(str(target), cause, "Rename the file.")


def _is_same_file(left: str, right: str) -> bool:
    try:
        return os.path.samefile(left, right)
    except OSError:
        return False


def _import_failed(target: TargetRef, error: BaseException) -> TargetLoadError:
    from traceback import format_exception

    trace = error.__traceback__
    while trace is not None and _is_machinery(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    detail = "".join(format_exception(type(error), error.with_traceback(trace), trace)).rstrip()
    return TargetLoadError(
        str(target), f"importing it raised {type(error).__name__}: {error}", "Repair the import.", detail
    )


def _is_machinery(file: str) -> bool:
    return file == __file__ or file.startswith("<frozen importlib") or os.sep + "importlib" + os.sep in file


def _warn(target: TargetRef, took_s: float, *, has_read: bool) -> None:
    if not has_read and took_s <= SLOW_IMPORT_S:
        return
    import logging

    log = logging.getLogger("towline")
    if has_read:
        log.warning(
            "%s reads stdin while it is imported; every child and worker imports it, and has none to read", target
        )
    if took_s > SLOW_IMPORT_S:
        log.warning("importing %s took %.0f s; every child and worker takes that long to start", target, took_s)


def _attribute_of(module: ModuleType, target: TargetRef) -> Any:
    names = vars(module)
    wanted = target.attribute or DEFAULT_ATTRIBUTE
    if wanted in names:
        return names[wanted]
    pipelines, listed = _listed(module)
    if target.attribute is not None:
        raise TargetLoadError(str(target), f"it has no {wanted!r}", listed)
    if len({id(names[name]) for name in pipelines}) == 1:
        return names[pipelines[0]]
    hint = f"{listed} Name one: {target.path_or_name}:{pipelines[0]}." if pipelines else listed
    raise TargetLoadError(str(target), f"it has no {wanted!r}, and no single other pipeline", hint)


def refuse_other_than_pipeline(value: object, target: TargetRef) -> None:
    """Refuse what a target names when it is no pipeline (MOD-24).

    Raises:
        TargetLoadError: It is none; names those that its file has.
    """
    if not _is_pipeline(value):
        kind = f"the class {value.__name__}" if isinstance(value, type) else f"of type {type(value).__name__}"
        _, listed = _listed(sys.modules[target.module_name])
        raise TargetLoadError(str(target), f"it is {kind}, not a Pipeline", listed)


def _listed(module: ModuleType) -> tuple[list[str], str]:
    pipelines = sorted(_pipelines_in(module))
    return pipelines, f"It has {', '.join(pipelines)}." if pipelines else "It has no pipeline at all."


def _pipelines_in(module: ModuleType) -> Iterator[str]:
    """Name the globals that are pipelines."""
    for name, value in vars(module).items():
        if not name.startswith("__") and _is_pipeline(value):
            yield name


def _is_pipeline(value: object) -> bool:
    """Tell by what it can do, for this room knows no pipeline class."""
    return all(callable(getattr(type(value), call, None)) for call in ("plan", "run_sync", "main"))


def _root_of(module: ModuleType, name: str) -> str:
    """The folder that holds the top package of a dotted name."""
    file = getattr(module, "__file__", None)
    if not isinstance(file, str):
        return os.getcwd()
    is_package = os.path.basename(file) == "__init__.py"
    depth = len(name.split(".")) + (1 if is_package else 0)
    path = os.path.abspath(file)
    for _ in range(depth):
        path = os.path.dirname(path)
    return path


class _WatchedStdin:
    """Stands for ``sys.stdin`` during an import, and notices that it is read."""

    def __init__(self, watched: Any) -> None:
        self.watched, self.has_read = watched, False

    def __getattr__(self, name: str) -> Any:
        if name in ("read", "readline", "readlines", "buffer", "fileno", "__next__"):
            self.has_read = True
        return getattr(self.watched, name)

    def __iter__(self) -> Iterator[str]:
        self.has_read = True
        return iter(self.watched)
