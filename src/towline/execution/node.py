"""What this machine is, as conditions and requirements ask (RUN-13, RUN-15, COORD-C24)."""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING, Any

from towline.errors.run import ConditionError
from towline.modules.capabilities import MASTER_CAPABILITY, fits, in_words, platform_capabilities
from towline.modules.outcomes import Outcome, Reason, Skipped
from towline.modules.spec import NO_SETTINGS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from towline.modules.conditions import Condition
    from towline.modules.spec import ModuleSpec
    from towline.planning.built import BuiltPlan

SYSTEM_NAMES = {"Linux": "linux", "Darwin": "macos", "Windows": "windows"}
GIT_TIMEOUT_S = 30.0


class Node:
    """This machine: answers what conditions ask (``modules.conditions.Surroundings``)."""

    def __init__(self, params: Any, root: Path, environ: Mapping[str, str], declared: Collection[str] = ()) -> None:
        self.params, self._root, self._environ = params, root, environ
        self.system = SYSTEM_NAMES.get(platform.system(), platform.system().lower())
        own = platform_capabilities(platform.system(), platform.machine())
        self.capabilities = frozenset(own) | frozenset(name.casefold() for name in declared)
        self._changed: dict[str, frozenset[str]] = {}

    def variable(self, name: str) -> str | None:
        """The environment variable, ``None`` when it is not set."""
        return self._environ.get(name)

    def has_file(self, path: str) -> bool:
        """Whether a file or folder is there, relative to the program's root."""
        return (self._root / path).exists()

    def has_command(self, program: str) -> bool:
        """Whether a program is found on the search path."""
        from shutil import which

        return which(program, path=self._environ.get("PATH")) is not None

    def changed_paths(self, since: str) -> Collection[str]:
        """Paths that differ from a git revision, new files included.

        Raises:
            RuntimeError: Git cannot tell; what cannot be told is never false.
        """
        if since not in self._changed:
            tracked = self._git("diff", "--name-only", "-z", since, "--")
            new = self._git("ls-files", "--others", "--exclude-standard", "-z")
            self._changed[since] = frozenset(tracked) | frozenset(new)
        return self._changed[since]

    def _git(self, *arguments: str) -> list[str]:
        import subprocess

        try:
            done = subprocess.run(
                ["git", *arguments], cwd=self._root, capture_output=True, timeout=GIT_TIMEOUT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise RuntimeError(f"git could not be asked: {error}") from error
        if done.returncode:
            raise RuntimeError(f"git {arguments[0]} failed: {done.stderr.decode('utf-8', 'backslashreplace').strip()}")
        return [os.fsdecode(path) for path in done.stdout.split(b"\0") if path]


def known_skip(spec: ModuleSpec, node: Node, *, is_routed: bool = False) -> Reason | None:
    """Say why this machine will not run a module, as far as that is known before anything runs.

    ``is_routed``: tasks go to a machine that meets their requirement; this one need not (DIST-28).

    Raises:
        ConditionError: A condition cannot be told (RUN-14).
    """
    settings = spec.settings
    if not is_routed and (unmet := unmet_words(spec, node)):
        return Reason(code="requirement_unmet", text=unmet)
    for wanted, conditions in ((True, settings.run_if), (False, settings.skip_if)):
        for condition in conditions:
            if callable(condition):
                continue
            if _holds(condition, spec.name, node) is not wanted:
                word = "run_if" if wanted else "skip_if"
                return Reason(code="condition", text=f"{word} {condition.words} is {str(not wanted).lower()}")
    return None


def unmet_words(spec: ModuleSpec, node: Node) -> str:
    """Say what a module requires that a run of this machine alone lacks; empty when it has all of it (RUN-15)."""
    requires = spec.settings.requires
    if requires is None or fits(requires, node.capabilities | {MASTER_CAPABILITY}):  # it leads its own run
        return ""
    return f"needs {in_words(requires)}; this machine has {', '.join(sorted(node.capabilities))}"


def _holds(condition: Condition, module: str, node: Node) -> bool:
    try:
        return condition.holds(node)
    except Exception as error:
        raise ConditionError(module, condition.words, f"cannot be told: {error}") from error


def known_skips(built: BuiltPlan, node: Node, *, is_routed: bool = False) -> dict[int, Outcome[Any]]:
    """Decide, task by task, what is known to be skipped on this machine."""
    reasons = {
        name: reason
        for name, spec in built.specs.items()
        if spec.settings is not NO_SETTINGS and (reason := known_skip(spec, node, is_routed=is_routed)) is not None
    }
    if not reasons:
        return {}
    return {
        place: Skipped(task_id=task.id, reason=reasons[task.module])
        for place, task in enumerate(built.tasks)
        if task.module in reasons
    }
