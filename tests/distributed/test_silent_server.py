"""A server that goes away and stays away: what the operator hears meanwhile, and in the end."""

from __future__ import annotations

import time
from contextvars import ContextVar
from typing import TYPE_CHECKING

import pytest

from cli.shell import Shell, ended, wait_for_file, wait_for_text
from towline.access.outages import Outages, outages
from towline.pipeline.outages import tell_outages
from towline.testing import clause
from towline.testing.redis_server import RedisTestServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LEASE_S, MASTER_TIMEOUT_S = 3.0, 6.0

PROGRAM = f"""
import asyncio
from pathlib import Path
from towline import Context, Options, Pipeline, module

@module(matrix={{"n": [1, 2, 3, 4]}})
async def walk(ctx: Context) -> None:
    cursor = await ctx.cursor(key=int)
    async for item in cursor.items(range(2000)):
        Path(f"walking-{{ctx.matrix['n']}}").touch()
        await asyncio.sleep(0.05)

pipeline = Pipeline(
    "iso", [walk], options=Options(worker_timeout_s={LEASE_S}, master_timeout_s={MASTER_TIMEOUT_S}, parallelism=2)
)
"""


ONE = """
from towline import Context, Pipeline, module

@module(requires="master")
async def only(ctx: Context) -> None: ...

pipeline = Pipeline("one", [only])
"""


@pytest.fixture
def server() -> Iterator[RedisTestServer]:
    with RedisTestServer(persistent=True) as running:
        yield running


@clause("STATE-07", "STATE-10", "COORD-R20")
@pytest.mark.parametrize("comes_back_empty", [False, True])
def test_a_server_that_stays_away_is_named(server: RedisTestServer, tmp_path: Path, comes_back_empty: bool) -> None:
    """Nobody took the plan away: the operator is to look after the server, not for another owner."""
    shell = Shell(tmp_path)
    shell.write("iso.py", PROGRAM)
    flags = ("iso.py", "--coordinator", server.url, "--run-id", "a7")
    master = shell.start("run", *flags)
    worker = shell.start("worker", *flags)
    for n in (1, 2, 3, 4):
        wait_for_file(tmp_path / f"walking-{n}")

    server.stop(kill=True)
    gone_at = time.monotonic()
    if comes_back_empty:
        server.clear()
        server.start()
    of_master = ended(master)
    took_s = time.monotonic() - gone_at
    of_worker = ended(worker)

    assert (of_master.code, of_worker.code) == (4, 4)
    assert "nobody is known" not in of_master.err
    assert took_s < LEASE_S + 10, "it does not wait for answers that cannot come"
    if comes_back_empty:
        assert "the server has lost the state that it had" in of_master.err
        return
    assert f"no answer from {server.url}/0 for" in of_master.err
    for told, limit_s in ((of_master.out + of_master.err, LEASE_S), (of_worker.err, MASTER_TIMEOUT_S)):
        [warning] = [line for line in told.splitlines() if "It is waited for" in line]
        assert f"no answer from {server.url}/0" in warning
        assert f"until that has lasted {limit_s:g} s" in warning


@clause("COORD-R20")
def test_an_outage_is_told_once_and_its_end_once() -> None:
    """Ten connections ask a server that is away; the operator reads one line of it, and none of a hiccup."""
    outages, told = Outages(), list[tuple[str, float, str]]()
    end = outages.hear(lambda *what: told.append(what))

    outages.failed("redis://a", 100.0, "refused")
    outages.answered("redis://a", 100.5)
    assert (told, outages.are_known) == ([], False)

    for now in (200.0, 200.5, 201.5, 202.0, 203.0):
        outages.failed("redis://a", now, "refused")
    outages.answered("redis://a", 204.0)
    outages.answered("redis://a", 205.0)
    assert told == [("redis://a", 1.5, "refused"), ("redis://a", 4.0, "")]

    end()
    for now in (300.0, 302.0):
        outages.failed("redis://a", now, "refused")
    assert len(told) == 2


@clause("COORD-R20")
def test_a_silence_that_a_body_meets_is_told_outside_of_it() -> None:
    """In the context of that body the line would go into the log of its task, and the worker's own would not have it."""
    body: ContextVar[str] = ContextVar("body", default="")
    told: list[tuple[str, str]] = []
    end = tell_outages(lambda text: told.append((body.get(), text)), 60.0)
    try:
        body.set("m6")
        outages.failed("redis://forge", 10.0, "TimeoutError", waited_s=5.0)
        outages.answered("redis://forge", 13.0)
    finally:
        end()
    assert [where for where, _ in told] == ["", ""]
    assert "for 5 s (TimeoutError)." in told[0][1]
    assert told[1][1].endswith("answers again, after 8 s")


@clause("COORD-R20")
def test_a_server_that_is_away_at_the_start_is_waited_for_aloud(server: RedisTestServer, tmp_path: Path) -> None:
    """Half a minute without a word looks like a program that hangs; and who starts the server late should not start twice."""
    shell = Shell(tmp_path)
    shell.write("one.py", ONE)
    server.stop()
    said = tmp_path / "said.txt"
    with said.open("wb") as output:
        master = shell.start("run", "one.py", "--coordinator", server.url, "--run-id", "a8", stdout=output)
    wait_for_text(said, "no answer from")
    server.start()

    assert ended(master).code == 0
    assert "then the start is given up, before anything has run" in said.read_text()
    assert "answers again, after" in said.read_text()
