"""What a context needs from the engine: small doors that higher rooms fill (DESIGN section 3)."""

# ruff: noqa: TC004 - the record is never decoded, so its annotations need no imports at start-up.

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec

if TYPE_CHECKING:
    import logging
    from collections.abc import Awaitable, Callable, Coroutine, Mapping
    from contextlib import AbstractAsyncContextManager
    from os import PathLike
    from pathlib import Path

    from towline.artifacts.records import ArtifactRef
    from towline.masking import Secret
    from towline.modules.outcomes import Finding


class Attempt(msgspec.Struct, kw_only=True):
    """The facts of one attempt of one task, shared by its context, its doors and the runner."""

    task_id: str
    module: str
    key: str | None = None
    run_id: str
    attempt: int = 1
    epoch: int = 1
    worker_id: str
    workdir: Path
    matrix: Mapping[str, Any] = {}
    item: Any = None
    params: object = None
    cancelled: bool = False
    ended: bool = False
    """The attempt is over: writes through its context raise from now on (RUN-23)."""
    unawaited: dict[object, tuple[str, Coroutine[Any, Any, Any]]] | None = None
    """Calls of an async body that it has not awaited yet, as they are written."""


class Doors(Protocol):
    """Everything a context can ask for. One object serves all attempts of a node.

    Each call raises ``CancelledError`` once the attempt is cancelled, and ``LeaseLostError`` when the
    task went to another node. The blocking forms for sync bodies are made from these by the runner.
    """

    def log(self, attempt: Attempt) -> logging.Logger:
        """The logger whose records go to this task's log."""
        ...

    def progress(self, attempt: Attempt, done: int, total: int | None) -> None: ...

    def finding(self, attempt: Attempt, finding: Finding) -> None:
        """Record a finding; a blocking one outside a gate raises ``FindingError`` (PLAN-54)."""
        ...

    def secret(self, attempt: Attempt, name: str) -> Secret: ...

    def mask(self, attempt: Attempt, value: str) -> None: ...

    async def run(self, attempt: Attempt, argv: tuple[str | PathLike[str], ...], options: Mapping[str, Any]) -> Any:
        """Run a command; returns a ``CommandResult``."""
        ...

    async def run_step(
        self, attempt: Attempt, name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Call once and remember (CUR-14)."""
        ...

    def open_step(self, attempt: Attempt, name: str, result: Any) -> AbstractAsyncContextManager[Any]:
        """The open form (CUR-15)."""
        ...

    async def open_cursor(self, attempt: Attempt, options: Mapping[str, Any]) -> Any: ...

    def open_sync_cursor(self, attempt: Attempt, options: Mapping[str, Any]) -> Any:
        """Open the cursor of a sync body, in the body's own thread: a target's connection lives there."""
        ...

    async def put_artifact(self, attempt: Attempt, name: str, path: str | PathLike[str]) -> ArtifactRef: ...

    async def get_artifact(self, attempt: Attempt, reference: ArtifactRef, into: str | PathLike[str]) -> Path: ...

    def find_artifacts(self, attempt: Attempt, module: str, name: str) -> ArtifactRef | list[ArtifactRef]: ...

    def offload(self, attempt: Attempt) -> Any:
        """The offload door of this run; raises ``OffloadUnavailableError`` where there is none."""
        ...

    def blocking(self, attempt: Attempt, call: Callable[[], Awaitable[Any]]) -> Any:
        """Run an async door from a sync body's thread and wait for it; ends early on cancellation."""
        ...
