"""``ctx.artifacts``: storing, fetching and finding artifacts inside a body (ART-12)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast, overload

from towline.modules.reference import spec_of

if TYPE_CHECKING:
    from os import PathLike
    from pathlib import Path

    from towline.artifacts.records import ArtifactRef
    from towline.modules.doors import Attempt, Doors
    from towline.modules.kinds import ManyModule, OneModule


class Artifacts(Protocol):
    """The artifacts that an async body can reach."""

    async def put(self, name: str, path: str | PathLike[str]) -> ArtifactRef:
        """Store a file or folder of the workdir as an artifact of this task."""
        ...

    async def get(self, reference: ArtifactRef, into: str | PathLike[str]) -> Path:
        """Restore an artifact below a folder of the workdir; returns where it lies."""
        ...

    @overload
    def find(self, module: OneModule[Any], name: str) -> ArtifactRef: ...
    @overload
    def find(self, module: ManyModule[Any], name: str) -> list[ArtifactRef]:
        """Give the reference of a declared dependency's artifact; of an expanded module one per key."""
        ...


class SyncArtifacts(Protocol):
    """The artifacts that a sync body can reach: the same calls, blocking."""

    def put(self, name: str, path: str | PathLike[str]) -> ArtifactRef:
        """Store a file or folder of the workdir as an artifact of this task."""
        ...

    def get(self, reference: ArtifactRef, into: str | PathLike[str]) -> Path:
        """Restore an artifact below a folder of the workdir; returns where it lies."""
        ...

    @overload
    def find(self, module: OneModule[Any], name: str) -> ArtifactRef: ...
    @overload
    def find(self, module: ManyModule[Any], name: str) -> list[ArtifactRef]:
        """Give the reference of a declared dependency's artifact; of an expanded module one per key."""
        ...


class _Finding:
    __slots__ = ("_attempt", "_doors")

    def __init__(self, attempt: Attempt, doors: Doors) -> None:
        self._attempt, self._doors = attempt, doors

    @overload
    def find(self, module: OneModule[Any], name: str) -> ArtifactRef: ...
    @overload
    def find(self, module: ManyModule[Any], name: str) -> list[ArtifactRef]: ...
    def find(self, module: Any, name: str) -> Any:
        return self._doors.find_artifacts(self._attempt, spec_of(module).name, name)


class TaskArtifacts(_Finding):
    """``Artifacts`` of one attempt, by way of the doors."""

    __slots__ = ()

    async def put(self, name: str, path: str | PathLike[str]) -> ArtifactRef:
        return await self._doors.put_artifact(self._attempt, name, path)

    async def get(self, reference: ArtifactRef, into: str | PathLike[str]) -> Path:
        return await self._doors.get_artifact(self._attempt, reference, into)


class SyncTaskArtifacts(_Finding):
    """``SyncArtifacts`` of one attempt, by way of the doors."""

    __slots__ = ()

    def put(self, name: str, path: str | PathLike[str]) -> ArtifactRef:
        doors, attempt = self._doors, self._attempt
        return cast("ArtifactRef", doors.blocking(attempt, lambda: doors.put_artifact(attempt, name, path)))

    def get(self, reference: ArtifactRef, into: str | PathLike[str]) -> Path:
        doors, attempt = self._doors, self._attempt
        return cast("Path", doors.blocking(attempt, lambda: doors.get_artifact(attempt, reference, into)))
