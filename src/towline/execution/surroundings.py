"""What surrounds a body on this node: artifacts, cache, commands, hook threads, warnings (RUN-01)."""

from __future__ import annotations

import asyncio
import contextvars
from functools import partial
from typing import TYPE_CHECKING, Any

from towline.errors.artifacts import ArtifactMissingError
from towline.errors.secrets import SecretInResultError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from os import PathLike
    from pathlib import Path

    from towline.artifacts.records import ArtifactRef
    from towline.artifacts.store import ArtifactStore
    from towline.execution.cached import CachedRuns
    from towline.execution.doors import NodeDoors
    from towline.execution.growth import Growth
    from towline.execution.options import Options
    from towline.execution.output import Output
    from towline.execution.taskrun import TaskRun
    from towline.execution.threads import ThreadPool
    from towline.execution.values import Values
    from towline.masking import Masker
    from towline.modules.outcomes import Succeeded
    from towline.planning.built import BuiltPlan


class Surroundings:
    """Does for a task what is not its body. ``values_must_travel``: a value that cannot be encoded fails its task."""

    def __init__(
        self,
        *,
        doors: NodeDoors,
        built: BuiltPlan,
        values: Values,
        growth: Growth,
        artifacts: ArtifactStore,
        cache: CachedRuns | None,
        output: Output,
        masker: Masker,
        threads: ThreadPool,
        options: Options,
        values_must_travel: bool,
        show: Callable[[str, TaskRun, dict[str, Any]], None],
    ) -> None:
        self.doors, self._built, self._values, self._growth = doors, built, values, growth
        self._artifacts, self._cache, self._output = artifacts, cache, output
        self._masker, self._threads, self._options = masker, threads, options
        self._show = show
        self.values_must_travel = values_must_travel
        self.secrets_fail = options.secret_in_result == "fail"
        doors.surroundings = self

    # -------------------------------------------------------------- inputs

    async def load(self, run: TaskRun) -> None:
        """Read what is not in memory: kept results of dependencies, the item of an ``each`` task."""
        run.attempt.item = await self._growth.item_of(run.position)
        run.inputs = await self._values.load_inputs(run.position)

    # -------------------------------------------------------------- artifacts

    async def restore_consumed(self, run: TaskRun) -> None:
        """Put what the task consumes into its folder (ART-05, ART-09).

        Raises:
            ArtifactMissingError: A dependency ended without the artifact.
            ArtifactCorruptError, UnsafeArchiveError: The stored bytes are not what was referenced.
        """
        from towline.artifacts.restoring import restore
        from towline.identity import segment

        for use in self._built.artifacts[self._values.joined(run.position)]:
            for producer in use.tasks:
                task = self._values.task(producer)
                reference = await self._reference(producer, use.artifact)
                into = run.attempt.workdir / use.into
                if use.many:
                    into = into / segment(task.key or task.id)
                await restore(self._artifacts, reference, into)

    async def _reference(self, producer: int, name: str) -> ArtifactRef:
        outcome = await self._values.load(producer)
        for reference in outcome.artifacts:
            if reference.name == name:
                return reference
        raise ArtifactMissingError(name, outcome.task_id, "its task ended without it")

    async def collect(self, run: TaskRun) -> tuple[ArtifactRef, ...]:
        """Store what the task declared to produce (ART-03, ART-04)."""
        from towline.artifacts.collecting import collect

        demanded = self._built.demanded.get(self._values.joined(run.position), {})
        references = list(run.artifacts)
        for name, pattern in run.kind.spec.settings.produces.items():
            reference = await collect(
                self._artifacts, run.row.id, name, pattern, run.attempt.workdir, run_id=run.attempt.run_id
            )
            if reference is None:
                if name in demanded:
                    detail = f"nothing matches {pattern!r} in {run.attempt.workdir}"
                    raise ArtifactMissingError(name, run.row.id, detail, demanded[name])
                self._output.log(run.attempt, "warning", f"artifact {name!r}: nothing matches {pattern!r}")
                continue
            references.append(reference)
            self._shown(run, reference)
        return tuple(references)

    def _shown(self, run: TaskRun, reference: ArtifactRef) -> None:
        data = {"name": reference.name, "digest": reference.digest, "size_bytes": reference.size_bytes}
        self._show("artifact", run, data)

    async def put_artifact(self, run: TaskRun, name: str, path: str | PathLike[str]) -> ArtifactRef:
        """Store one file or folder of the task under a name of its own choosing (ART-12)."""
        from towline.artifacts.collecting import collect_path
        from towline.artifacts.declaration import check_name

        check_name(name)
        reference = await collect_path(self._artifacts, run.row.id, name, run.attempt.workdir / path)
        run.artifacts = (*run.artifacts, reference)
        self._shown(run, reference)
        return reference

    async def get_artifact(self, run: TaskRun, reference: ArtifactRef, into: str | PathLike[str]) -> Path:
        """Restore an artifact into a folder of the task and return where it is."""
        from towline.artifacts.restoring import restore

        target = run.attempt.workdir / into
        await restore(self._artifacts, reference, target)
        return target / reference.file_name if reference.file_name else target

    def find_artifacts(self, run: TaskRun, module: str, name: str) -> ArtifactRef | list[ArtifactRef]:
        """Find the references of a declared dependency's artifact; a list for an expanded module."""
        from towline.errors.declaration import UndeclaredDependencyError

        known = {self._built.tasks[one].module for one in self._built.depends_on[self._values.joined(run.position)]}
        if module not in known:
            raise UndeclaredDependencyError(run.kind.spec.name, module)
        found = [
            reference
            for position in self._values.tasks_of(module)
            for reference in self._values.artifacts_of(position)
            if reference.name == name
        ]
        if self._built.specs[module].is_expanded:
            return found
        if not found:
            raise ArtifactMissingError(name, module, "its task ended without it")
        return found[0]

    # -------------------------------------------------------------- cache

    async def look_up(self, run: TaskRun) -> Succeeded[Any] | None:
        """Give the cached outcome of the task, its artifacts restored, or ``None`` (CACHE-01)."""
        if run.kind.spec.settings.cache is None or self._cache is None:
            return None
        return await self._cache.look_up(run)

    async def save(self, run: TaskRun, outcome: Succeeded[Any]) -> None:
        """Keep a success for later runs, if its inputs are still what they were (CACHE-04, CACHE-05)."""
        if run.kind.spec.settings.cache is not None and self._cache is not None:
            await self._cache.save(run, outcome)

    # -------------------------------------------------------------- commands

    async def run_command(self, run: TaskRun, argv: tuple[str | PathLike[str], ...], options: Mapping[str, Any]) -> Any:
        """Run a command for a body: masked, logged, counted, ended with the task (CMD)."""
        from towline.execution.commands import run_command

        run.commands += 1
        result = await run_command(
            argv,
            workdir=run.attempt.workdir,
            on_line=lambda stream, text: self._output.printed(run.attempt, stream, text),
            mask=self._masker.mask,
            replacement=self._options.commands,
            dry=self._options.dry_commands,
            **options,
        )
        data = {
            "argv": [self._masker.mask(one) for one in result.argv],
            "returncode": result.returncode,
            "duration_s": round(result.duration_s, 3),
        }
        self._show("command", run, data)
        return result

    # -------------------------------------------------------------- hooks and warnings

    async def in_thread(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Run a sync hook without holding the loop."""
        body = self._threads.start(partial(call, *arguments), contextvars.copy_context())
        return await asyncio.shield(body.done)

    def log_hook_error(self, run: TaskRun, hook: str, error: Exception) -> None:
        """Say that a hook failed; only ``before`` changes the outcome (RUN-05)."""
        self._output.log(run.attempt, "error", f"hook {hook} failed: {type(error).__name__}: {error}")

    def warn_not_stored(self, run: TaskRun, error: Exception) -> None:
        """Say that a value stays in memory: a resume that needs it runs the task again (SER-03)."""
        text = f"the result is not stored, a resume that needs it runs {run.row.id} again: {error}"
        self._output.log(run.attempt, "warning", text)

    def secret_in(self, run: TaskRun) -> SecretInResultError | None:
        """Look for a registered secret in an encoded result (SEC-09)."""
        if not self._masker.values:
            return None
        text = (run.payload or b"").decode("utf-8", "replace")
        if not self._masker.contains(text):
            return None
        error = SecretInResultError(run.row.id)
        if not self.secrets_fail:
            self._output.log(run.attempt, "warning", str(error))
        return error
