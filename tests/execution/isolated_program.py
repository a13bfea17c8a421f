"""The program whose bodies run in processes of their own; loaded by the test and by each child."""

from __future__ import annotations

import gc
import hashlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from towline import (
    CommandFailedError,
    Context,
    Outcome,
    Pipeline,
    Secret,
    Skip,
    Succeeded,
    SyncContext,
    module,
    outcome_of,
    result_of,
    tagged,
)


class OwnError(Exception):
    """A type that no other process may rebuild."""


@module
def numbers(ctx: SyncContext) -> list[int]:
    return [1, 2, 3]


@module(matrix={"kind": ["a", "b"]})
def kinds(ctx: SyncContext, kind: str) -> str:
    return kind


@module(isolation="process")
def facts(
    ctx: SyncContext,
    values: list[int] = result_of(numbers),
    many: list[str] = result_of(kinds),
    how: Outcome[list[int]] = outcome_of(numbers),
) -> dict[str, str]:
    assert isinstance(how, Succeeded)
    return {
        "inputs": f"{values} {many} {how.value} {how.task_id}",
        "pid": str(os.getpid()),
        "session": str(os.getsid(0)),
        "stdin": sys.stdin.read(),
        "task": ctx.task_id,
        "workdir": str(ctx.workdir),
        "loaded": str({"asyncio", "towline.planning.graph"} & set(sys.modules)),
        "collects": str(gc.isenabled()),
    }


@module(isolation="process")
async def on_loop(ctx: Context, values: list[int] = result_of(numbers)) -> str:
    echoed = await ctx.run("echo", *map(str, values))
    async with ctx.step("twice", result=int) as step:
        if not step.done:
            step.set(len(values) * 2)
    return f"{echoed.stdout.strip()} {step.value}"


@module(isolation="process")
def doors(ctx: SyncContext) -> dict[str, str]:
    ctx.log.info("a record")
    ctx.progress(1, 2)
    ctx.finding("CODE", "seen", evidence={"a": "b"})
    secret = ctx.secret("TOWLINE_TEST_VALUE").reveal()
    print("printed", secret)
    os.write(1, f"raw {secret}\n".encode())
    os.system(f"echo from C {secret}")
    ran = ctx.run("sh", "-c", "echo out; echo err >&2; exit 4", ok_codes=(4,))
    try:
        ctx.run("sh", "-c", "echo why >&2; exit 5")
    except CommandFailedError as error:
        failed = f"{error.returncode} {error.result.stderr.strip() if error.result else ''}"
    counted = ctx.step("count", len, "abcd")
    cursor = ctx.cursor(key=lambda item: item)
    for batch in cursor.batches(range(5), size=2):
        cursor.commit(batch)
    Path(ctx.workdir, "made.txt").write_text("made")
    reference = ctx.artifacts.put("made", "made.txt")
    return {
        "ran": f"{ran.returncode} {ran.stdout.strip()} {ran.stderr.strip()}",
        "failed": failed,
        "step": str(counted),
        "cursor": str(cursor.position),
        "artifact": reference.digest,
    }


@module(isolation="process")
def raises(ctx: SyncContext) -> None:
    raise KeyError("missing")


@module(isolation="process")
def raises_own(ctx: SyncContext) -> None:
    raise OwnError("of this program")


@module(isolation="process")
def skips(ctx: SyncContext) -> None:
    raise Skip("nothing to do")


@module(isolation="process")
def wrong(ctx: SyncContext) -> int:
    return "text"  # type: ignore[return-value]


def _leave_pids(*pids: int) -> None:
    file = Path(os.environ["TOWLINE_TEST_PIDS"])
    with file.open("a") as out:
        print(os.getpid(), *pids, file=out)


@module(isolation="process", retries=1)
def dies(ctx: SyncContext) -> int:
    _leave_pids()
    if ctx.attempt == 1:
        print("last words", file=sys.stderr, flush=True)
        os._exit(3)
    return ctx.attempt


@module(isolation="process")
def is_killed(ctx: SyncContext) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@module(isolation="process")
def babbles(ctx: SyncContext) -> None:
    for descriptor in range(3, 100):
        try:
            os.write(descriptor, b"\x05\x00\x00\x00hello")
        except OSError:
            continue
    time.sleep(60)


def _descendants() -> None:
    plain = subprocess.Popen(["sleep", "60"])
    apart = subprocess.Popen(["sleep", "60"], start_new_session=True)
    orphan = subprocess.run(
        ["sh", "-c", "setsid sleep 60 > /dev/null 2>&1 & echo $!"], stdout=subprocess.PIPE, check=True
    )
    stubborn = subprocess.Popen(
        [sys.executable, "-c", "import signal, time; signal.signal(15, 1); print(flush=True); time.sleep(60)"],
        stdout=subprocess.PIPE,
    )
    assert stubborn.stdout is not None
    stubborn.stdout.readline()
    _leave_pids(plain.pid, apart.pid, int(orphan.stdout), stubborn.pid)


@module(isolation="process", timeout=3)
def sleeps(ctx: SyncContext) -> None:
    _descendants()
    time.sleep(60)


@module(isolation="process", timeout=3)
def in_c(ctx: SyncContext) -> None:
    _descendants()
    hashlib.pbkdf2_hmac("sha256", b"secret", b"salt", 10**9)


@module(isolation="process", timeout=1)
def cooperates(ctx: SyncContext) -> None:
    _leave_pids()
    while not ctx.cancelled:
        time.sleep(0.01)


@module(isolation="process")
def leaves_something(ctx: SyncContext) -> None:
    _descendants()


@module(isolation="process")
def long(ctx: SyncContext) -> None:
    _descendants()
    print("begun", flush=True)
    time.sleep(60)


@module(each=["x", "y"], tags={"spread"})
def letters(ctx: SyncContext, item: str) -> str:
    return item.upper()


@module(tags={"spread"})
def number(ctx: SyncContext) -> int:
    return 7


@module(isolation="process")
def of_selector(
    ctx: SyncContext,
    values: list[Any] = result_of(tagged("spread")),
    how: list[Outcome[Any]] = outcome_of(tagged("spread")),
) -> str:
    return f"{values} {[one.task_id for one in how]}"


@dataclass
class Params:
    token: Secret = field(default_factory=lambda: Secret("unset"))
    other: Secret | None = None
    count: int = 0


@module(isolation="process")
def with_secret_params(ctx: SyncContext) -> str:
    params = ctx.params(Params)
    print("the token is", params.token.reveal())
    return f"{params.token} {len(params.token.reveal())} {params.other} {params.count}"


pipeline = Pipeline(
    "isolated",
    [
        facts,
        on_loop,
        doors,
        raises,
        raises_own,
        skips,
        wrong,
        dies,
        is_killed,
        babbles,
        sleeps,
        in_c,
        cooperates,
        leaves_something,
        long,
        letters,
        number,
        of_selector,
        with_secret_params,
    ],
    params=Params,
)

if __name__ == "__main__":
    pipeline.main()
