"""A coordinator on a shared directory: no server, only a folder that all nodes see (NFS, SMB, a shared volume).

The run's ledger is one document. Version n is the file ``<n>.json``; whoever links n+1 first has won, which holds on
local and network file systems alike. All the rules of coordination come from ``LedgerCoordinator``.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from pathlib import Path

from towline.coordination.document import Document, LedgerCoordinator

KEPT_VERSIONS = 3
"""Older files are removed; a reader that just missed one looks again."""


class DirectoryDocument(Document):
    """The document of one run in a folder of its own."""

    def __init__(self, folder: Path, *, look_every_s: float = 0.1) -> None:
        self._folder = folder
        self._look_every_s = look_every_s
        self._me = uuid.uuid4().hex
        folder.mkdir(parents=True, exist_ok=True)

    async def load(self) -> tuple[bytes, object]:
        while True:
            version = self._latest()
            if version == 0:
                return b"", 0
            try:
                return self._path(version).read_bytes(), version
            except FileNotFoundError:
                continue  # removed since we looked: there are newer ones

    async def compare_and_set(self, content: bytes, version: object) -> bool:
        assert isinstance(version, int)
        draft = self._folder / f"{self._me}.draft"
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, self._path(version + 1))
        except FileExistsError:
            return False
        finally:
            draft.unlink()
        self._path(version + 1 - KEPT_VERSIONS).unlink(missing_ok=True)
        return True

    async def wait_for_change(self, version: object) -> None:
        while self._latest() == version:  # noqa: ASYNC110 - a network folder notifies nobody
            await asyncio.sleep(self._look_every_s)

    async def now_ms(self) -> int:
        # The file server's clock, not ours: nodes whose clocks differ still agree on who is alive.
        probe = self._folder / f"{self._me}.time"
        probe.touch()
        return probe.stat().st_mtime_ns // 1_000_000

    async def aclose(self) -> None:
        (self._folder / f"{self._me}.time").unlink(missing_ok=True)

    def _path(self, version: int) -> Path:
        return self._folder / f"{version}.json"

    def _latest(self) -> int:
        return max((int(path.stem) for path in self._folder.glob("*.json")), default=0)


class DirectoryCoordinators:
    """The factory: give it to ``Options(coordinator=...)`` on every node, with the same folder."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def create_master(self, run_id: str) -> LedgerCoordinator:
        return self._make(run_id)

    async def create_worker(self, run_id: str) -> LedgerCoordinator:
        return self._make(run_id)

    async def live_runs(self, program: str) -> list[str]:
        if not self._root.exists():
            return []
        found = []
        for folder in sorted(self._root.iterdir(), key=lambda path: path.stat().st_ctime):
            coordinator = self._make(folder.name)
            state = await coordinator.run_state()
            await coordinator.aclose()
            if state.state == "running" and state.program == program:
                found.append(folder.name)
        return found

    def _make(self, run_id: str) -> LedgerCoordinator:
        return LedgerCoordinator(DirectoryDocument(self._root / run_id), run_id)
