"""Real processes on one root: races, and kill -9 at random moments."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import time
from pathlib import Path

from state.envs import PLAN_ID, owned_plan, snapshot
from towline.state.directory import DirectoryStore
from towline.testing import clause

ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

RACER = """
import asyncio, sys
from towline.errors import VersionConflictError
from towline.state import ABSENT
from towline.state.directory import DirectoryStore

async def main():
    store = DirectoryStore(sys.argv[1])
    won = 0
    sys.stdin.readline()
    async def write(number):
        try:
            await store.write(f"cursors/{number % 40}.json", sys.argv[2].encode(), ABSENT)
        except VersionConflictError:
            return 0
        return 1
    print(sum(await asyncio.gather(*(write(number) for number in range(40)))))

asyncio.run(main())
"""


@clause("STATE-01", "STATE-15")
def test_compare_and_set_holds_between_processes(tmp_path: Path) -> None:
    """Five processes race for forty documents: each document has exactly one writer."""
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(tmp_path), str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=ENVIRONMENT,
        )
        for number in range(5)
    ]
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write(b"go\n")
        racer.stdin.flush()
    won = [int(racer.communicate(timeout=60)[0]) for racer in racers]
    assert sum(won) == 40

    async def contents() -> list[bytes]:
        store = DirectoryStore(tmp_path)
        return [entry.data for number in range(40) if (entry := await store.read(f"cursors/{number}.json"))]

    found = asyncio.run(contents())
    assert [found.count(b"%d" % number) for number in range(5)] == won


@clause("STATE-16", "PLAN-20", "PLAN-32")
def test_two_processes_killed_at_random_leave_a_readable_root(tmp_path: Path) -> None:
    """They fight for one root and die at any instruction; the next run starts and loses nothing durable."""
    chance, seen, ends_at = random.Random(23), 0, time.monotonic() + 5

    def start(number: int) -> subprocess.Popen[bytes]:
        code = "import sys; from state.scenarios import hammer; hammer(sys.argv[1], int(sys.argv[2]))"
        return subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path), str(number)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=ENVIRONMENT,
        )

    async def look() -> int:
        store, ownership, plan = await owned_plan(tmp_path)
        loaded = await plan.load()
        generation = loaded.head.generation + 1 if loaded.head else 1
        # Going on makes it the new plan, so that damage would add up and show.
        await plan.write_snapshot(
            [snapshot(generation=generation, applied_seq=loaded.last_seq)],
            generation=generation,
            plan_id=PLAN_ID,
            owner_epoch=ownership.epoch,
        )
        await plan.close()
        await store.close()
        return loaded.last_seq

    rounds = 0
    while rounds < 3 or (time.monotonic() < ends_at and rounds < 20):
        pair = [start(number) for number in range(2)]
        said = 0
        try:
            line = pair[rounds % 2].stdout.readline()  # type: ignore[union-attr]
            time.sleep(chance.random() * 0.05)  # a random moment of two busy processes
        finally:
            for process in pair:
                process.kill()
        for process, first in zip(pair, (line, b"") if rounds % 2 == 0 else (b"", line), strict=True):
            output, errors = process.communicate(timeout=30)
            assert errors == b"", errors.decode()
            said = max([said, *(int(one.split()[1]) for one in (first + output).splitlines() if one.count(b" "))])
        last = asyncio.run(look())
        assert last >= max(said, seen)
        assert said > 0
        seen, rounds = last, rounds + 1
    assert not any(path.name.endswith(".tmp") for path in tmp_path.rglob("*"))
