"""Errors of the state store, the plan on disk and its owner (``planning.md`` section 10)."""

from __future__ import annotations

from typing import ClassVar

from towline.errors.coordination import LeaseLostError
from towline.errors.root import TowlineError

__all__ = [
    "LeaseLostError",
    "OwnerUnreadableError",
    "OwnershipLostError",
    "PlanCorruptError",
    "PlanOwnedError",
    "ResultCorruptError",
    "SchemaTooNewError",
    "StateAccessError",
    "StateError",
    "StateLostError",
    "StateTooLargeError",
    "StateUnsupportedError",
    "VersionConflictError",
]


class StateError(TowlineError):
    """The durable state of a pipeline cannot be used as asked."""

    exit_code: ClassVar[int] = 4


class PlanCorruptError(StateError):
    """The plan or its journal is damaged; nothing was changed (PLAN-22).

    ``offset`` is in bytes from the start of the file, ``-1`` where a path in the document says it better.
    """

    def __init__(self, file: str, detail: str, offset: int = -1) -> None:
        super().__init__(file, detail, offset)
        self.file, self.detail, self.offset = file, detail, offset

    def __str__(self) -> str:
        where = f" at byte {self.offset}" if self.offset >= 0 else ""
        return f"{self.file} is damaged{where}: {self.detail}. Restore it from a copy, or start anew with --fresh."


class SchemaTooNewError(StateError):
    """A newer Towline wrote this document (PLAN-26)."""

    def __init__(self, file: str, found: int, known: int) -> None:
        super().__init__(file, found, known)
        self.file, self.found, self.known = file, found, known

    def __str__(self) -> str:
        return f"{self.file} has schema {self.found}, this Towline knows {self.known}. Use a newer Towline."


class PlanOwnedError(StateError):
    """Another process owns the plan, or it cannot be told that it does not (STATE-08)."""

    def __init__(self, root: str, owner_id: str, run_id: str, host: str, pid: int, since: str) -> None:
        super().__init__(root, owner_id, run_id, host, pid, since)
        self.root, self.owner_id, self.run_id = root, owner_id, run_id
        self.host, self.pid, self.since = host, pid, since

    def __str__(self) -> str:
        state, _, pipeline = self.root.partition(" (")
        named = f"{state} --pipeline {pipeline.removesuffix(')')}" if "://" in state and pipeline else self.root
        return (
            f"{self.root} is owned by {self.owner_id} (run {self.run_id}, process {self.pid} on {self.host}, since "
            f"{self.since}). Wait for that run to end, or stop it: towline cancel {named}."
        )


class OwnerUnreadableError(PlanOwnedError):
    """Something stands where the owner should, and does not say who; it counts as a living owner (STATE-08).

    ``record``: where it stands, on the server of ``root``. ``left_s``: seconds until it goes by itself; ``None``: never.
    """

    def __init__(self, root: str, record: str, left_s: float | None) -> None:
        super().__init__(root, "an unknown owner", "", "an unknown host", 0, "an unknown moment")
        self.args = (root, record, left_s)
        self.record, self.left_s = record, left_s

    def __str__(self) -> str:
        ends = "it never runs out by itself" if self.left_s is None else f"it runs out in {self.left_s:.0f} s"
        return (
            f"the owner record of {self.root} cannot be read, so nobody can tell whether a run of it lives ({ends}). "
            f"See that none does, then remove the key: redis-cli DEL '{self.record}'."
        )


class OwnershipLostError(StateError):
    """A former owner tried to write; a newer one has the plan (STATE-03), or ``cause`` took it from all."""

    def __init__(self, store: str, held_epoch: int, current_epoch: int, cause: str = "") -> None:
        super().__init__(store, held_epoch, current_epoch, cause)
        self.store, self.held_epoch, self.current_epoch, self.cause = store, held_epoch, current_epoch, cause

    def __str__(self) -> str:
        now = f"owner epoch {self.current_epoch} has it now" if self.current_epoch else "nobody is known to have it now"
        advice = (
            "repair that and resume the run, or start it anew"
            if self.cause
            else "resume the run when that owner is gone"
        )
        return (
            f"this process no longer owns {self.store} (owner epoch {self.held_epoch}): {self.cause or now}. "
            f"Nothing more is written; {advice}."
        )


class StateLostError(StateError):
    """The store could not be written or read in time (PLAN-18, STATE-07).

    ``last_success`` names the last write that is known to be durable, for example ``seq 118``.
    """

    def __init__(self, store: str, doing: str, cause: str, last_success: str = "") -> None:
        super().__init__(store, doing, cause, last_success)
        self.store, self.doing, self.cause, self.last_success = store, doing, cause, last_success

    def __str__(self) -> str:
        last = f"; last success: {self.last_success}" if self.last_success else ""
        return f"{self.doing} in {self.store} failed: {self.cause}{last}. Repair the store, then run again: what was recorded is kept."


class StateAccessError(StateError):
    """The server that keeps the state refuses this password, or wants one; nothing was read or written."""

    exit_code: ClassVar[int] = 2

    def __init__(self, store: str, doing: str, cause: str) -> None:
        super().__init__(store, doing, cause)
        self.store, self.doing, self.cause = store, doing, cause

    def __str__(self) -> str:
        return f"{self.doing} in {self.store} was refused: {self.cause}."


class StateUnsupportedError(StateError):
    """The store lacks something that Towline relies on (STATE-14, 22, 24)."""

    exit_code: ClassVar[int] = 2

    def __init__(self, store: str, lacks: str) -> None:
        super().__init__(store, lacks)
        self.store, self.lacks = store, lacks

    def __str__(self) -> str:
        return f"{self.store} cannot keep the state: {self.lacks}. Use another --state, or change that."


class StateTooLargeError(StateError):
    """A document or line is above the limit (STATE-06). Sizes are in bytes."""

    exit_code: ClassVar[int] = 1

    def __init__(self, key: str, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(key, size_bytes, limit_bytes)
        self.key, self.size_bytes, self.limit_bytes = key, size_bytes, limit_bytes

    def __str__(self) -> str:
        return (
            f"{self.key} would have {self.size_bytes} bytes, the limit is {self.limit_bytes}. "
            "Return large data as an artifact."
        )


class VersionConflictError(StateError):
    """A compare-and-set found another version; the caller reads again (STATE-01). ``None``: no document."""

    def __init__(self, key: str, expected: str | None, found: str | None) -> None:
        super().__init__(key, expected, found)
        self.key, self.expected, self.found = key, expected, found

    def __str__(self) -> str:
        return (
            f"{self.key} has version {self.found or 'absent'}, expected was {self.expected or 'absent'}. "
            "Read it again and decide anew."
        )


class ResultCorruptError(StateError):
    """A stored result does not have the digest that the plan recorded (PLAN-37).

    ``offset``: of its line in a file with the results of many tasks, in bytes; ``None`` for a file of its own.
    """

    def __init__(self, file: str, task_id: str, recorded: str, found: str, offset: int | None = None) -> None:
        super().__init__(file, task_id, recorded, found, offset)
        self.file, self.task_id, self.recorded, self.found, self.offset = file, task_id, recorded, found, offset

    def __str__(self) -> str:
        where = self.file if self.offset is None else f"{self.file} at byte {self.offset}"
        again = "the task runs" if self.offset is None else "it and the others whose results are in it run"
        return (
            f"the stored result of {self.task_id!r} is damaged: {where} has digest {self.found}, the plan says "
            f"{self.recorded}. No task has read it. Move that file away and run with --resume: {again} again."
        )
