"""Errors around artifacts: nothing matched, damaged bytes, a hostile archive."""

from __future__ import annotations

from towline.errors.root import TowlineError


class ArtifactError(TowlineError):
    """Something is wrong with an artifact."""


class ArtifactMissingError(ArtifactError):
    """An artifact that someone needs is not there: nothing matched, or the store does not have it (ART-03, ART-13)."""

    def __init__(self, artifact: str, task_id: str, detail: str, consumers: tuple[str, ...] = ()) -> None:
        super().__init__(artifact, task_id, detail, tuple(consumers))
        self.artifact, self.task_id, self.detail, self.consumers = artifact, task_id, detail, tuple(consumers)

    def __str__(self) -> str:
        wanted = f" It is needed by {', '.join(self.consumers)}." if self.consumers else ""
        return (
            f"artifact {self.artifact!r} of {self.task_id or 'an unknown task'} is missing: {self.detail}.{wanted} "
            "Correct the pattern, or run the producer again."
        )


class ArtifactCorruptError(ArtifactError):
    """Stored bytes are not those that were stored (ART-09); nothing was written."""

    def __init__(self, artifact: str, task_id: str, digest: str, detail: str) -> None:
        super().__init__(artifact, task_id, digest, detail)
        self.artifact, self.task_id, self.digest, self.detail = artifact, task_id, digest, detail

    def __str__(self) -> str:
        return (
            f"artifact {self.artifact!r} of {self.task_id or 'an unknown task'} ({self.digest}) is damaged: {self.detail}. "
            "Nothing was written; run its producer again."
        )


class ArtifactPackError(ArtifactError):
    """Files cannot be packed as they are: a socket, a link out of the tree, a file that changed meanwhile (ART-07)."""

    def __init__(self, artifact: str, path: str, detail: str) -> None:
        super().__init__(artifact, path, detail)
        self.artifact, self.path, self.detail = artifact, path, detail

    def __str__(self) -> str:
        return (
            f"artifact {self.artifact!r} cannot be packed: {self.path!r} {self.detail}. Nothing is left out silently: "
            "remove the file, or narrow the pattern."
        )


class ArtifactTooLargeError(ArtifactError):
    """An artifact is above the limit of its store (ART-15)."""

    def __init__(self, store: str, limit_bytes: int) -> None:
        super().__init__(store, limit_bytes)
        self.store, self.limit_bytes = store, limit_bytes

    def __str__(self) -> str:
        return (
            f"the artifact has more than the {self.limit_bytes:,} bytes that {self.store} takes, and was not stored. "
            "Split it, or give Options an artifact_store that is made for such sizes."
        )


class UnsafeArchiveError(ArtifactError):
    """An archive holds an entry that could write where it should not (ART-10)."""

    def __init__(self, entry: str, detail: str) -> None:
        super().__init__(entry, detail)
        self.entry, self.detail = entry, detail

    def __str__(self) -> str:
        return (
            f"the archive is refused, nothing was written: entry {self.entry!r} {self.detail}. Run its producer again."
        )
