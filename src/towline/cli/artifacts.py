"""``towline artifacts RUN [NAME]``: list what a run produced, and fetch it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from towline.cli.failing import say
from towline.cli.history import find_report
from towline.cli.plans import seen_plans
from towline.cli.results import write_json, write_result
from towline.errors.configuration import AmbiguousNameError, UnknownNameError
from towline.identity import segment, suggestion
from towline.views.words import size_words

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from towline.artifacts.records import ArtifactRef
    from towline.cli.states import Where


class Produced(NamedTuple):
    """The artifacts of a run, and who has their bytes: a folder, or a server by its URL."""

    run_id: str
    pipeline: str
    references: Sequence[ArtifactRef]
    place: Path | str


def list_artifacts(run: str, name: str | None, into: str, where: Where, *, as_json: bool) -> int:
    """List the artifacts of a run, or restore the one called ``name`` (or ``task/name``) below ``into``.

    Raises:
        UnknownNameError, AmbiguousNameError: No such run or artifact, or several.
        ArtifactMissingError, ArtifactCorruptError: The store does not have it whole; nothing was written.
        StateLostError: The server cannot be asked.
    """
    found = _on_server(run, where) if where.is_url else _in_history(run, where)
    if name is not None:
        write_result([str(asyncio.run(_restore(_choose(name, found), found, into)))])
        return 0
    if as_json:
        rows = [
            {"task": one.task_id, "name": one.name, "digest": one.digest, "size_bytes": one.size_bytes}
            for one in found.references
        ]
        write_json({"artifacts": rows})
        return 0
    lines = [f"{one.task_id}/{one.name}  {size_words(one.size_bytes)}  {one.digest}" for one in found.references]
    write_result(lines or [f"{found.run_id} has no artifacts"])
    return 0


def _in_history(run: str, where: Where) -> Produced:
    """Look into a report, which also says where the bytes are."""
    report, root = find_report(run, where)
    references = [reference for task in report.tasks for reference in task.artifacts]
    return Produced(report.run_id, report.pipeline, references, report.artifacts_at or root / "artifacts")


def _on_server(run: str, where: Where) -> Produced:
    """Look into the plans on a server, for a machine that has no report: each names the artifacts of its latest run."""
    seen, damages = seen_plans(where)
    plans = [one.document for one in seen]
    found = [plan for plan in plans if run in ("latest", plan.run_id)]
    if damages and not found:
        raise damages[0]
    for damage in damages:
        say(f"warning: {damage}")
    if not found:
        hint = suggestion(run, ["latest", *(plan.run_id for plan in plans)]) or "the server knows the latest run alone."
        raise UnknownNameError("run", run, "the plans on this server", hint)
    plan = max(found, key=lambda one: one.updated_at)
    references = [reference for row in plan.tasks for reference in row.artifacts or ()]
    return Produced(plan.run_id, plan.pipeline, references, where.state or "")


def _choose(name: str, found: Produced) -> ArtifactRef:
    meant = [one for one in found.references if name in (one.name, f"{one.task_id}/{one.name}")]
    if len(meant) == 1:
        return meant[0]
    choices = tuple(f"{one.task_id}/{one.name}" for one in meant or found.references)
    if meant:
        raise AmbiguousNameError("artifact", name, choices)
    known = {one.name for one in found.references} | set(choices)
    hint = suggestion(name, known) or f"`towline artifacts {found.run_id}` lists what there is."
    raise UnknownNameError("artifact", name, f"run {found.run_id}", hint)


async def _restore(reference: ArtifactRef, found: Produced, into: str) -> Path:
    from towline.artifacts.restoring import restore

    if not isinstance(found.place, str):
        from towline.artifacts.directory import DirectoryArtifactStore

        return await restore(DirectoryArtifactStore(found.place), reference, into)
    from towline.access.redis_calls import RedisCalls
    from towline.access.redis_keys import PipelineKeys
    from towline.access.redis_server import RedisServer
    from towline.artifacts.redis_store import RedisArtifactStore
    from towline.errors.state import StateLostError

    calls = RedisCalls(RedisServer(found.place), retry_limit_s=0.0)
    try:
        return await restore(RedisArtifactStore(calls, PipelineKeys(segment(found.pipeline))), reference, into)
    except OSError as error:
        if error.filename is not None:  # trouble with a file of this machine
            raise
        doing = f"fetching {reference.task_id}/{reference.name}"
        raise StateLostError(calls.server.shown, doing, error.strerror or str(error)) from error
    finally:
        await calls.close()
