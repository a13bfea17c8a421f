"""Encoded results beside the plan: small ones as lines of one file, large ones as documents (STATE-12, PLAN-37)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from towline.errors.state import ResultCorruptError, StateTooLargeError
from towline.identity import digest_of
from towline.state.keys import RESULTS_KEY, result_key
from towline.state.store import DOCUMENT_LIMIT_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from towline.state.plan_guard import PlanGuard
    from towline.state.plan_medium import PlanMedium

LINE_LIMIT_BYTES: Final = 16 * 1024
"""Largest result that is a line of ``results.jsonl``: a file of its own costs a hundred times as much."""

_WORTH_COMPACTING_BYTES: Final = 64 * 1024


class ResultPlace(msgspec.Struct, frozen=True):
    """Where a result lies and what it must hash to; goes into the plan's record.

    ``offset``: of its line in ``results.jsonl``, in bytes; ``None``: it has a document of its own. The offset
    is a hint: compaction moves lines, and the digest finds them again.
    """

    digest: str
    offset: int | None


class ResultFile:
    """The results of one plan. Written by its owner, before the record that names them (PLAN-17)."""

    def __init__(self, medium: PlanMedium, guard: PlanGuard) -> None:
        self._medium, self._guard = medium, guard
        self._offsets: dict[str, int] | None = None
        """Digest -> offset, made when a hint turned out to be old."""

    def append(self, task_id: str, data: bytes) -> ResultPlace:
        """Store one encoded result; as durable as the next journal record.

        A line costs a few microseconds. ``data`` is JSON; with a line feed in it, it becomes a document.

        Raises:
            StateLostError, OwnershipLostError: It was not stored.
            StateTooLargeError: More than 64 MiB.
        """
        self._guard.check()
        if len(data) > DOCUMENT_LIMIT_BYTES:
            raise StateTooLargeError(result_key(task_id), len(data), DOCUMENT_LIMIT_BYTES)
        offset: int | None = None
        try:
            if len(data) <= LINE_LIMIT_BYTES and b"\n" not in data:
                offset = self._medium.append_result(data + b"\n")
            else:
                self._medium.write_result(result_key(task_id), data + b"\n")
        except OSError as error:
            self._guard.lose(f"storing the result of {task_id}", error)
        self._offsets = None
        return ResultPlace(digest_of(data), offset)

    async def read(self, task_id: str, place: ResultPlace) -> bytes | None:
        """Return a result; ``None`` when it is gone or was cut short, which a power cut can do.

        Raises:
            ResultCorruptError: What is there has another digest.
            StateLostError: It cannot be read.
        """
        try:
            if place.offset is None:
                file, data = result_key(task_id), await self._document(task_id)
            else:
                file, data = RESULTS_KEY, await self._line(place)
        except OSError as error:
            self._guard.lose(f"reading the result of {task_id}", error)
        if data is None:
            return None
        found = digest_of(data)
        if found != place.digest:
            raise ResultCorruptError(f"{self._medium.name}/{file}", task_id, place.digest, found, place.offset)
        return data

    async def missing(self, places: Iterable[tuple[str, ResultPlace]]) -> list[str]:
        """Return the tasks whose result is gone, empty or cut short. Digests are left to ``read`` (PLAN-37)."""
        lines: bytes | None = None
        gone: list[str] = []
        for task_id, place in places:
            if place.offset is None:
                data = await self._document(task_id)
            else:
                lines = await self._medium.read_results() if lines is None else lines
                end = lines.find(b"\n", place.offset)
                data = lines[place.offset : end] if end >= 0 else None
            if not data:
                gone.append(task_id)
        return gone

    async def compact(
        self, places: Iterable[tuple[str, ResultPlace]], *, force: bool = False
    ) -> dict[str, ResultPlace]:
        """Drop what no task refers to; returns the places that changed.

        Lines are rewritten only when more than half of the file, and more than 64 KiB, is unused, or with
        ``force``. A kill at any moment loses nothing: the new file holds every line that is referred to,
        and an old offset is found again by its digest.
        """
        self._guard.check()
        kept = list(places)
        inline = [(task_id, place) for task_id, place in kept if place.offset is not None]
        documents = {result_key(task_id) for task_id, place in kept if place.offset is None}
        moved: dict[str, ResultPlace] = {}
        try:
            for key in await self._medium.list_results():
                if key not in documents:
                    await self._medium.remove_result(key)
            size = len(await self._medium.read_results())
            lines = [(task_id, place, await self._line(place)) for task_id, place in inline]
            used = sum(len(line) + 1 for _, _, line in lines if line is not None)
            if size - used <= (0 if force else max(_WORTH_COMPACTING_BYTES, size // 2)):
                return moved
            self._guard.check()
            await self._medium.replace_results(line + b"\n" for _, _, line in lines if line is not None)
        except OSError as error:
            self._guard.lose("compacting results", error)
        offset = 0
        for task_id, place, line in lines:
            if line is not None:
                moved[task_id] = ResultPlace(place.digest, offset)
                offset += len(line) + 1
        self._offsets = None
        return moved

    async def _document(self, task_id: str) -> bytes | None:
        data = await self._medium.read_result(result_key(task_id))
        return data[:-1] if data is not None and data.endswith(b"\n") else None

    async def _line(self, place: ResultPlace) -> bytes | None:
        """Return the line at the hint, or wherever the digest is; what stands at the hint if it is nowhere."""
        line = await self._medium.read_result_at(place.offset or 0)
        if line is not None and digest_of(line) == place.digest:
            return line
        if self._offsets is None:
            self._offsets = {}
            offset = 0
            for stored in (await self._medium.read_results()).split(b"\n"):
                self._offsets[digest_of(stored)] = offset
                offset += len(stored) + 1
        moved_to = self._offsets.get(place.digest)
        return line if moved_to is None else await self._medium.read_result_at(moved_to)
