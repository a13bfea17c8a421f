"""Look up and save the results of cached tasks of one run (CACHE-01 .. CACHE-11).

Nothing here ever fails a task: any trouble is a warning, and the task runs as if the cache were empty.
The one exception is a restore that could not be undone.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import msgspec

from towline.artifacts.copying import copy
from towline.artifacts.declaration import fixed_part, is_literal
from towline.artifacts.matching import find
from towline.artifacts.restoring import restore
from towline.artifacts.store import in_thread
from towline.execution.cache import CachedResult, value_digest
from towline.execution.cache_parts import CacheParts
from towline.execution.fingerprints import UncacheableError, changed_parts
from towline.modules.outcomes import Reason, Succeeded
from towline.serialization.codec import codec_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from towline.artifacts.records import ArtifactRef
    from towline.artifacts.store import ArtifactStore
    from towline.clock import Clock
    from towline.execution.cache import CacheStore
    from towline.execution.cache_parts import CachedTask, Outcomes, TakenBefore
    from towline.modules.doors import Attempt
    from towline.modules.spec import ModuleSpec
    from towline.planning.built import BuiltPlan


class CachedRuns:
    """The cache as the runner of one node uses it.

    Args:
        store: Where entries are kept.
        artifacts: The run's own artifact store; a hit gives it the bytes that consumers will ask for.
        built: The plan that is run.
        outcomes: How its tasks have ended.
        root: The program's root, that input patterns and code are relative to; ``None`` without a file.
        log: Says something in a task's log: attempt, level, text.
        clock: Stamps the outcomes of hits.
        run_id: The run that stored artifacts are listed for.
    """

    def __init__(
        self,
        *,
        store: CacheStore,
        artifacts: ArtifactStore,
        built: BuiltPlan,
        outcomes: Outcomes,
        root: str | os.PathLike[str] | None,
        log: Callable[[Attempt, str, str], None],
        clock: Clock,
        run_id: str | None = None,
    ) -> None:
        self._store, self._artifacts, self._built = store, artifacts, built
        self._parts = CacheParts(built, outcomes, root)
        self._log, self._clock, self._run_id = log, clock, run_id
        self._known: dict[int, TakenBefore] = {}
        self._said: set[str] = set()

    async def look_up(self, run: CachedTask) -> Succeeded[Any] | None:
        """Give the cached outcome of a task, its artifacts in place, or ``None`` if its body has to run.

        Raises:
            OSError: A restore failed and what it wrote cannot be removed (CACHE-07).
        """
        self._known.pop(run.position, None)
        try:
            known = await self._parts.take(run)
        except UncacheableError as error:
            self._say_once(run, f"is not cached: {error}")
            return None
        self._known[run.position] = known
        fingerprint = known.fingerprint
        try:
            entry = await self._store.lookup(fingerprint.digest)
            if entry is None:
                before = await self._store.last_parts(run.row.id)
                why = ", ".join(changed_parts(before, fingerprint.parts)) if before else "it was never cached"
                self._log(run.attempt, "debug", f"not in the cache: {why}")
                return None
            value = codec_for(self._spec(run).result_type).decode(entry.value, workdir=run.attempt.workdir)
        except Exception as error:  # noqa: BLE001 - whatever ails the cache, the task can run (CACHE-07)
            self._log(run.attempt, "warning", f"the cache is of no use, the task runs: {error}")
            return None
        if not await self._restored(run, entry):
            return None
        return Succeeded(
            value,
            task_id=run.row.id,
            finished_at=self._clock.now(),
            attempts=run.row.attempts,
            epoch=run.attempt.epoch,
            worker_id=run.attempt.worker_id,
            reason=Reason(code="cached"),
            artifacts=tuple(msgspec.structs.replace(one, task_id=run.row.id) for one in entry.artifacts),
            findings=entry.findings,
            origin="cached",
        )

    async def save(self, run: CachedTask, outcome: Succeeded[Any]) -> None:
        """Keep a success under the fingerprint that was taken before its body, if that is still true."""
        known = self._known.pop(run.position, None)
        if known is None or outcome.origin != "executed":
            return
        try:
            changed = await self._parts.changed_since(run, known)
            if changed:
                self._log(run.attempt, "warning", f"the result is not cached: {changed} while the task ran")
                return
            codec = codec_for(self._spec(run).result_type)
            payload = msgspec.Raw(codec.encode(outcome.value, workdir=run.attempt.workdir))
            for reference in outcome.artifacts:
                await copy(reference, self._artifacts, self._store.artifacts)
            entry = CachedResult(
                fingerprint=known.fingerprint.digest,
                task_id=run.row.id,
                value=payload,
                value_digest=value_digest(payload),
                findings=outcome.findings,
                artifacts=outcome.artifacts,
                parts=known.fingerprint.parts,
            )
            await self._store.save(entry)
        except Exception as error:  # noqa: BLE001 - whatever ails the cache, the task has succeeded (CACHE-07)
            self._log(run.attempt, "warning", f"the result is not cached: {error}")

    def _say_once(self, run: CachedTask, text: str) -> None:
        if run.row.module not in self._said:
            self._said.add(run.row.module)
            self._log(run.attempt, "warning", f"{run.row.module} {text}")

    def _spec(self, run: CachedTask) -> ModuleSpec:
        return self._built.spec_of(run.row)

    # ------------------------------------------------------------- artifacts

    async def _restored(self, run: CachedTask, entry: CachedResult) -> bool:
        """Put the artifacts of a hit into the workdir and the run's store; says whether that went well."""
        produces = self._spec(run).settings.produces
        workdir = run.attempt.workdir
        try:
            await in_thread(_clear, workdir, produces)
            for reference in entry.artifacts:
                await copy(reference, self._store.artifacts, self._artifacts, run_id=self._run_id)
                pattern = produces.get(reference.name)
                if pattern is not None:
                    await restore(self._store.artifacts, reference, workdir / _folder_of(pattern, reference))
        except Exception as error:  # noqa: BLE001 - whatever ails the cache, the task can run (CACHE-07)
            await in_thread(_clear, workdir, produces)
            self._log(run.attempt, "warning", f"the cached artifacts are of no use, the task runs: {error}")
            return False
        return True


def _folder_of(pattern: str, reference: ArtifactRef) -> str:
    """Return the folder below which the pattern's files lie."""
    return (
        os.path.dirname(fixed_part(pattern))
        if is_literal(pattern) and reference.kind == "file"
        else fixed_part(pattern)
    )


def _clear(workdir: Path, produces: Mapping[str, str]) -> None:
    """Remove the files of the declared artifacts: what a restore does not bring shall not look restored (CACHE-08)."""
    for name, pattern in produces.items():
        match = find(workdir, pattern, name)
        for entry in match.entries if match is not None else ():
            if entry.kind == "folder":
                os.rmdir(entry.source)
            else:
                os.unlink(entry.source)
