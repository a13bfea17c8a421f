"""What a run says while it waits for others: for commands that will not end, for workers that do not know its name."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

from cli.shell import interrupt, wait_for_file
from towline.testing import clause
from towline.testing.redis_server import RedisTestServer

if TYPE_CHECKING:
    from cli.shell import Shell

STUBBORN = """
from towline import Context, Options, Pipeline, module

@module
async def hard(ctx: Context) -> None:
    await ctx.run("sh", "-c", "trap '' TERM; touch traps; while :; do sleep 0.05; done")

pipeline = Pipeline("stubborn", [hard], options=Options(terminate_grace_s=3))
"""


@clause("RUN-48", "CMD-06")
def test_a_run_says_what_it_waits_for_at_its_end(shell: Shell) -> None:
    """Its tasks are cancelled and nothing moves for seconds: the operator must know that this is no hang."""
    shell.write("stubborn.py", STUBBORN)
    process = shell.start("run", "stubborn.py")
    wait_for_file(shell.folder / "traps")
    begun = time.monotonic()

    ended = interrupt(process, signal.SIGINT)

    assert ended.code == 130
    assert time.monotonic() - begun < 8
    said = [line for line in ended.out.splitlines() if "waiting for" in line]
    assert len(said) == 1
    assert "waiting for the programs of 1 command that was told to end" in said[0]
    assert "killed" in said[0]


NAMED = """
from towline import Pipeline, SyncContext, module

@module
def one(ctx: SyncContext) -> None: ...

pipeline = Pipeline("named", [one])
"""


@clause("DIST-04")
def test_a_master_without_a_run_id_says_how_workers_join(shell: Shell) -> None:
    """It makes a name up that no worker can know; whoever starts workers must be able to give it."""
    shell.write("named.py", NAMED)
    with RedisTestServer() as server:
        made_up = shell.run("run", "named.py", "--coordinator", server.url).out
        given = shell.run("run", "named.py", "--coordinator", server.url, "--run-id", "r-mine").out
    run_id = made_up.rpartition("named r-")[2].partition(" ")[0]
    assert f"workers join this run with --run-id r-{run_id}, or without a run id any run of named" in made_up
    assert "workers join" not in given
    assert "workers join" not in shell.run("run", "named.py", "--workers", "1").out
