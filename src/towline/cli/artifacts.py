"""``towline artifacts RUN [NAME]``: list what a run produced, and fetch it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from towline.cli.history import find_report
from towline.cli.results import write_json, write_result
from towline.errors.configuration import AmbiguousNameError, UnknownNameError
from towline.identity import suggestion
from towline.views.words import size_words

if TYPE_CHECKING:
    from pathlib import Path

    from towline.artifacts.records import ArtifactRef


def list_artifacts(run: str, name: str | None, into: str, state: str | None, *, as_json: bool) -> int:
    """List the artifacts of a run, or restore the one called ``name`` (or ``task/name``) below ``into``.

    Raises:
        UnknownNameError, AmbiguousNameError: No such run or artifact, or several.
        ArtifactMissingError, ArtifactCorruptError: The store does not have it whole; nothing was written.
    """
    report, root = find_report(run, state)
    found = [reference for task in report.tasks for reference in task.artifacts]
    if name is not None:
        reference = _choose(name, found, report.run_id)
        path = _restore(reference, root, into)
        write_result([str(path)])
        return 0
    if as_json:
        rows = [
            {"task": one.task_id, "name": one.name, "digest": one.digest, "size_bytes": one.size_bytes} for one in found
        ]
        write_json({"artifacts": rows})
        return 0
    lines = [f"{one.task_id}/{one.name}  {size_words(one.size_bytes)}  {one.digest}" for one in found]
    write_result(lines or [f"{report.run_id} has no artifacts"])
    return 0


def _choose(name: str, found: list[ArtifactRef], run_id: str) -> ArtifactRef:
    meant = [one for one in found if name in (one.name, f"{one.task_id}/{one.name}")]
    if len(meant) == 1:
        return meant[0]
    choices = tuple(f"{one.task_id}/{one.name}" for one in meant or found)
    if meant:
        raise AmbiguousNameError("artifact", name, choices)
    known = {one.name for one in found} | set(choices)
    hint = suggestion(name, known) or f"`towline artifacts {run_id}` lists what there is."
    raise UnknownNameError("artifact", name, f"run {run_id}", hint)


def _restore(reference: ArtifactRef, root: Path, into: str) -> Path:
    from towline.artifacts.directory import DirectoryArtifactStore
    from towline.artifacts.restoring import restore

    return asyncio.run(restore(DirectoryArtifactStore(root / "artifacts"), reference, into))
