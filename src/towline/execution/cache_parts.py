"""Gather what a cached task depends on: module, code, files, variables, dependencies (CACHE-02 .. CACHE-04)."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from towline.artifacts.store import in_thread
from towline.errors.values import ValueTravelError
from towline.execution.cache import value_digest
from towline.execution.cache_files import digest_files
from towline.execution.fingerprints import Fingerprint, UncacheableError, changed_parts, fingerprint_of, key_bytes
from towline.execution.program_code import code_digests, program_files
from towline.modules.outcomes import Failed, Succeeded, TimedOut
from towline.serialization.codec import codec_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from towline.artifacts.records import ArtifactRef
    from towline.modules.doors import Attempt
    from towline.modules.outcomes import Outcome
    from towline.modules.spec import CacheRule, ModuleSpec
    from towline.planning.built import BuiltPlan
    from towline.planning.records import PlannedTask


class CachedTask(Protocol):
    """What the cache needs to know of an execution."""

    @property
    def position(self) -> int: ...
    @property
    def row(self) -> PlannedTask: ...
    @property
    def attempt(self) -> Attempt: ...


class Outcomes(Protocol):
    """The outcomes of the run, by position in the plan."""

    def outcome(self, position: int) -> Outcome[Any]: ...
    def task(self, position: int) -> PlannedTask: ...
    def joined(self, position: int) -> int: ...
    def tasks_of(self, module: str) -> Sequence[int]: ...
    def artifacts_of(self, position: int) -> Sequence[ArtifactRef]: ...


class TakenBefore(msgspec.Struct, frozen=True):
    """What was taken before the body ran, to be saved or compared after it (CACHE-04)."""

    fingerprint: Fingerprint
    files: dict[str, bytes]
    code_files: tuple[str, ...]


class CacheParts:
    """Takes fingerprints of the tasks of one plan; code is digested once, when the first task asks.

    What this process has loaded is what it runs, so a file that is edited later does not count for it.
    """

    def __init__(self, built: BuiltPlan, outcomes: Outcomes, root: str | os.PathLike[str] | None) -> None:
        self._built, self._outcomes = built, outcomes
        self._root = None if root is None else Path(root)
        self._code: dict[str, str] | None = None
        self._code_files: tuple[str, ...] = ()

    async def take(self, run: CachedTask) -> TakenBefore:
        """Take the fingerprint of a task whose inputs are known.

        Raises:
            UncacheableError: Something in it cannot be told apart from something else.
        """
        spec = self._built.spec_of(run.row)
        rule = spec.settings.cache
        if rule is None:
            raise UncacheableError("it has no cache= setting")
        version = rule.version or spec.settings.version
        code = await self._code_parts(version)
        files = await in_thread(digest_files, self._files_root(run), rule.inputs)
        parts = [*self._own_parts(run, spec, rule), *code, *files.items(), *self._above(run)]
        return TakenBefore(fingerprint_of(parts), files, () if version is not None else self._code_files)

    def _files_root(self, run: CachedTask) -> Path:
        return self._root if self._root is not None else run.attempt.workdir

    def _own_parts(self, run: CachedTask, spec: ModuleSpec, rule: CacheRule) -> Iterable[tuple[str, bytes]]:
        yield "module", spec.name.encode()
        yield "task key", (run.row.key or "").encode("utf-8", "surrogatepass")
        yield "arguments", key_bytes(spec.arguments)
        yield "produces", key_bytes(dict(spec.settings.produces))
        yield "params", self._built.params_digest.encode()
        if run.attempt.item is not None:
            yield "item", run.row.item_digest.encode() if run.row.item_digest else key_bytes(run.attempt.item)
        for index, value in enumerate(rule.key):
            yield f"key[{index}]", key_bytes(value)
        for name in rule.env:
            value = os.environ.get(name)
            yield f"variable {name}", b"unset" if value is None else b"set " + os.fsencode(value)
        if not rule.portable:
            yield "system", platform.system().encode()
            yield "machine", platform.machine().encode()
            yield "Python", b"%d.%d" % sys.version_info[:2]

    async def _code_parts(self, version: str | None) -> list[tuple[str, bytes]]:
        """The code of the program as it was when the first cached task asked: what this process has loaded."""
        if version is not None:
            return [("version", version.encode())]
        if self._root is None:
            raise UncacheableError("its program has no file, so its code cannot be told apart; give it a version=")
        if self._code is None:
            files = program_files(self._root)
            try:
                self._code = await in_thread(code_digests, self._root, files)
            except OSError as error:
                raise UncacheableError(f"the program's source cannot be read: {error}") from error
            self._code_files = tuple(files)
        return [(f"code {name}", digest.encode()) for name, digest in self._code.items()]

    def _above(self, run: CachedTask) -> Iterable[tuple[str, bytes]]:
        """One part per dependency: its state, with the digest of its value or the reason why it has none."""
        place = self._outcomes.joined(run.position)
        by_value: set[int] = set()
        for use in self._built.inputs[place]:
            by_value.update(use.tasks)
            for position in self._spread(use.tasks, None if use.many else run.row.key):
                name = self._outcomes.task(position).id
                yield f"{use.param} of {name}", self._ended(position, self._outcomes.outcome(position))
        for position in self._built.depends_on[place]:
            if position not in by_value:
                row = self._outcomes.task(position)
                yield f"state of {row.id}", row.state.encode()
        for artifact in self._built.artifacts[place]:
            for position in self._spread(artifact.tasks, None):
                digests = [r.digest for r in self._outcomes.artifacts_of(position) if r.name == artifact.artifact]
                name = f"{artifact.artifact} of {self._outcomes.task(position).id}"
                yield f"artifact {name}", "\n".join([artifact.into, *digests]).encode()

    def _spread(self, positions: Sequence[int], key: str | None) -> Iterable[int]:
        """Put the children of an ``each`` module in the place of their join; the one with this key, if given."""
        for position in positions:
            row = self._outcomes.task(position)
            if not row.join:
                yield position
                continue
            children = self._outcomes.tasks_of(row.module)
            paired = [child for child in children if key is not None and self._outcomes.task(child).key == key]
            yield from paired or children

    def _ended(self, position: int, outcome: Outcome[Any]) -> bytes:
        if isinstance(outcome, Succeeded):
            if outcome.value is None:
                return b"succeeded"
            spec = self._built.spec_of(self._outcomes.task(position))
            try:
                return b"succeeded " + value_digest(codec_for(spec.result_type).encode(outcome.value)).encode()
            except ValueTravelError as error:
                raise UncacheableError(
                    f"the result of {spec.name}, which it uses, cannot be encoded: {error}"
                ) from error
        code = outcome.reason.code if outcome.reason is not None else ""
        error_text = (
            f"{outcome.error.type_name}: {outcome.error.text}" if isinstance(outcome, Failed | TimedOut) else ""
        )
        return f"{type(outcome).__name__} {code} {error_text}".encode("utf-8", "surrogatepass")

    async def changed_since(self, run: CachedTask, known: TakenBefore) -> str:
        """Say what is no longer as it was before the body, or nothing (CACHE-04)."""
        rule = self._built.spec_of(run.row).settings.cache
        try:
            files = await in_thread(digest_files, self._files_root(run), rule.inputs if rule is not None else ())
        except UncacheableError as error:
            return str(error)
        words = changed_parts(_shown(known.files), _shown(files))
        if known.code_files and self._root is not None:
            # Loaded after the code was digested: a change of it would go unseen the next time.
            words += [f"code {file} was loaded" for file in program_files(self._root) if file not in known.code_files]
        return ", ".join(words[:5])


def _shown(files: Mapping[str, bytes]) -> dict[str, str]:
    return {name: content.hex() for name, content in files.items()}
