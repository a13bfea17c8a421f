"""What bodies work with: ``Context`` for ``async def``, ``SyncContext`` for ``def``.

Neither knows the engine: each call goes through the doors of the node (``modules/doors.py``). One context is
made per attempt, on the hot path, so everything in it is looked up when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, cast, overload

from towline.modules.awaiting import awaited
from towline.modules.facts import TaskFacts
from towline.modules.outcomes import Finding
from towline.modules.step_results import declared_result

if TYPE_CHECKING:
    import logging
    from collections.abc import Awaitable, Callable, Coroutine, Mapping
    from contextlib import AbstractAsyncContextManager, AbstractContextManager
    from os import PathLike
    from typing import Unpack

    from towline.masking import Secret
    from towline.modules.artifacts import Artifacts, SyncArtifacts
    from towline.modules.commands import CommandOptions, CommandResult
    from towline.modules.doors import Attempt, Doors
    from towline.offload import OffloadDoor
    from towline.state.cursors import Cursor, CursorKey, SyncCursor
    from towline.state.query import Query
    from towline.state.sql_cursor import SqlCursor
    from towline.state.steps import Step

    Key = TypeVar("Key", bound=CursorKey)
else:
    Key = TypeVar("Key")

P = ParamSpec("P")
V = TypeVar("V")
Item = TypeVar("Item")


class _AnyContext(TaskFacts):
    """What both contexts offer."""

    __slots__ = ("_doors",)

    def __init__(self, attempt: Attempt, doors: Doors) -> None:
        self._attempt, self._doors = attempt, doors

    @property
    def log(self) -> logging.Logger:
        """The logger of this task: its records go to the task's log, masked."""
        return self._doors.log(self._attempt)

    @property
    def cancelled(self) -> bool:
        """Whether the task is to end: a long loop of a sync body asks this, and returns."""
        return self._attempt.cancelled

    def progress(self, done: int, total: int | None = None) -> None:
        """Show how far the body is: so many of so many; for people alone, nothing is remembered."""
        self._doors.progress(self._attempt, done, total)

    def finding(
        self,
        code: str,
        message: str,
        *,
        severity: Literal["info", "warning", "blocking"] = "warning",
        evidence: Mapping[str, str] | None = None,
        suggested_action: str | None = None,
    ) -> None:
        """Record what an operator should know about the data; a blocking one needs a module with ``gate=True``.

        The same ``code`` with the same ``evidence`` counts once (RUN-60).

        Raises:
            FindingError: Blocking, in a task that is no gate.
        """
        finding = Finding(
            code=code,
            severity=severity,
            message=message,
            evidence=dict(evidence or {}),
            suggested_action=suggested_action,
        )
        self._doors.finding(self._attempt, finding)

    def secret(self, name: str) -> Secret:
        """Read a secret of this node by name; its value is masked everywhere from now on.

        Raises:
            SecretMissingError: The node has no such secret.
        """
        return self._doors.secret(self._attempt, name)

    def mask(self, value: str) -> None:
        """Show ``***`` in place of this text wherever the run writes something."""
        self._doors.mask(self._attempt, value)


class Context(_AnyContext):
    """What an async body works with."""

    __slots__ = ()

    @property
    def artifacts(self) -> Artifacts:
        """Store, fetch and find artifacts."""
        from towline.modules.artifacts import TaskArtifacts

        return TaskArtifacts(self._attempt, self._doors)

    @property
    def offload(self) -> OffloadDoor:
        """Arrays and kernels on the nodes of this run.

        Raises:
            OffloadUnavailableError: The run has none.
        """
        return cast("OffloadDoor", self._doors.offload(self._attempt))

    @overload
    async def run(
        self,
        program: str | PathLike[str],
        /,
        *args: str | PathLike[str],
        encoding: None,
        **options: Unpack[CommandOptions],
    ) -> CommandResult[bytes]: ...
    @overload
    async def run(
        self,
        program: str | PathLike[str],
        /,
        *args: str | PathLike[str],
        encoding: str = "utf-8",
        **options: Unpack[CommandOptions],
    ) -> CommandResult[str]: ...
    def run(
        self,
        program: str | PathLike[str],
        /,
        *args: str | PathLike[str],
        encoding: str | None = "utf-8",
        **options: Unpack[CommandOptions],
    ) -> Coroutine[Any, Any, CommandResult[Any]]:
        """Run a command without a shell; it ends, with all it started, when the task ends (CMD-01).

        Raises:
            CommandFailedError: It ended with a code outside ``ok_codes``, unless ``check=False``.
            CommandTimeoutError: It did not end within ``timeout``.
            CommandNotFoundError: There is no such program.
        """
        doors, attempt, given = self._doors, self._attempt, {"encoding": encoding, **options}
        return awaited(attempt, f"ctx.run({str(program)!r})", lambda: doors.run(attempt, (program, *args), given))

    @overload
    def step(self, name: str, /) -> AbstractAsyncContextManager[Step[None]]: ...
    @overload
    def step(self, name: str, /, *, result: type[V]) -> AbstractAsyncContextManager[Step[V]]: ...
    @overload
    def step(
        self, name: str, fn: Callable[P, Coroutine[Any, Any, V]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[V]: ...
    @overload
    def step(self, name: str, fn: Callable[P, V], /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[V]: ...
    def step(self, name: str, fn: Callable[..., Any] | None = None, /, *args: Any, **kwargs: Any) -> Any:
        """Do a part once and remember its value over retries and resumes (CUR-14, CUR-15).

        With a function: ``await ctx.step("count", count_rows, path)`` calls it, unless it was done before.
        Without: ``async with ctx.step("mail", result=Receipt) as step`` opens the step.

        Raises:
            StepReusedError: The name was used before in this attempt.
            StepValueError: The value cannot be stored.
        """
        if fn is not None:
            doors, attempt = self._doors, self._attempt
            return awaited(attempt, f"ctx.step({name!r})", lambda: doors.run_step(attempt, name, fn, args, kwargs))
        return self._doors.open_step(self._attempt, name, kwargs.get("result"))

    def cursor(
        self,
        *,
        key: Callable[[Item], Key],
        stages: tuple[str, ...] = ("done",),
        total: int | None = None,
        query: Query | None = None,
        on_query_change: Literal["fail", "restart"] = "fail",
        checkpoint_interval_s: float = 0.0,
        store: SqlCursor | None = None,
    ) -> Coroutine[Any, Any, Cursor[Item, Key]]:
        """Open the task's cursor at the place that the last attempt reached.

        key: what orders the items. stages: an item's stages in order, the last one moves the cursor.
        store: keep the cursor in the target database, in the caller's own transaction.

        Raises:
            QueryChangedError: The source was read with another query before.
        """
        options = _cursor_options(key, stages, total, query, on_query_change, checkpoint_interval_s, store)
        doors, attempt = self._doors, self._attempt
        return awaited(attempt, "ctx.cursor()", lambda: doors.open_cursor(attempt, options))


class SyncContext(_AnyContext):
    """What a sync body works with: the names of ``Context``, blocking; safe from the body's own threads."""

    __slots__ = ()

    @property
    def artifacts(self) -> SyncArtifacts:
        """Store, fetch and find artifacts."""
        from towline.modules.artifacts import SyncTaskArtifacts

        return SyncTaskArtifacts(self._attempt, self._doors)

    @overload
    def run(
        self,
        program: str | PathLike[str],
        /,
        *args: str | PathLike[str],
        encoding: None,
        **options: Unpack[CommandOptions],
    ) -> CommandResult[bytes]: ...
    @overload
    def run(
        self,
        program: str | PathLike[str],
        /,
        *args: str | PathLike[str],
        encoding: str = "utf-8",
        **options: Unpack[CommandOptions],
    ) -> CommandResult[str]: ...
    def run(
        self,
        program: str | PathLike[str],
        /,
        *args: str | PathLike[str],
        encoding: str | None = "utf-8",
        **options: Unpack[CommandOptions],
    ) -> CommandResult[Any]:
        """Run a command and wait for it; as ``Context.run``."""
        doors, attempt = self._doors, self._attempt
        given = {"encoding": encoding, **options}
        return cast("CommandResult[Any]", doors.blocking(attempt, lambda: doors.run(attempt, (program, *args), given)))

    @overload
    def step(self, name: str, /) -> AbstractContextManager[Step[None]]: ...
    @overload
    def step(self, name: str, /, *, result: type[V]) -> AbstractContextManager[Step[V]]: ...
    @overload
    def step(self, name: str, fn: Callable[P, V], /, *args: P.args, **kwargs: P.kwargs) -> V: ...
    def step(self, name: str, fn: Callable[..., Any] | None = None, /, *args: Any, **kwargs: Any) -> Any:
        """Do a part once and remember its value; as ``Context.step``. The function runs in the body's thread."""
        opened = _BlockingStep(
            self._attempt, self._doors, name, kwargs.get("result") if fn is None else declared_result(fn)
        )
        if fn is None:
            return opened
        with opened as step:
            if not step.done:
                step.set(fn(*args, **kwargs))
            return step.value

    def cursor(
        self,
        *,
        key: Callable[[Item], Key],
        stages: tuple[str, ...] = ("done",),
        total: int | None = None,
        query: Query | None = None,
        on_query_change: Literal["fail", "restart"] = "fail",
        checkpoint_interval_s: float = 0.0,
        store: SqlCursor | None = None,
    ) -> SyncCursor[Item, Key]:
        """Open the task's cursor at the place that the last attempt reached; as ``Context.cursor``."""
        options = _cursor_options(key, stages, total, query, on_query_change, checkpoint_interval_s, store)
        return cast("SyncCursor[Item, Key]", self._doors.open_sync_cursor(self._attempt, options))


class _BlockingStep:
    """An open step of a sync body."""

    __slots__ = ("_attempt", "_doors", "_name", "_opened", "_result")

    def __init__(self, attempt: Attempt, doors: Doors, name: str, result: Any) -> None:
        self._attempt, self._doors, self._name, self._result = attempt, doors, name, result

    def __enter__(self) -> Step[Any]:
        self._opened = self._doors.open_step(self._attempt, self._name, self._result)
        return cast("Step[Any]", self._doors.blocking(self._attempt, self._opened.__aenter__))

    def __exit__(self, *error: Any) -> None:
        opened = self._opened
        self._doors.blocking(self._attempt, lambda: opened.__aexit__(*error))


def _cursor_options(
    key: Callable[[Any], Any],
    stages: tuple[str, ...],
    total: int | None,
    query: Query | None,
    on_query_change: str,
    checkpoint_interval_s: float,
    store: SqlCursor | None,
) -> dict[str, Any]:
    return {
        "key": key,
        "stages": stages,
        "total": total,
        "query": query,
        "on_query_change": on_query_change,
        "checkpoint_interval_s": checkpoint_interval_s,
        "store": store,
    }
