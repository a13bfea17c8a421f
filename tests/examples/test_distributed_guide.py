"""The guide to several machines, followed as a reader would: its program, its terminals, one of them killed."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.runs import start
from structure.repository import ROOT
from structure.snippets import File, parse
from towline.testing.redis_server import RedisTestServer

GUIDE = ROOT / "docs" / "guides" / "distributed.md"
LIMIT_S = 60


@pytest.fixture
def terminals(tmp_path: Path, redis: RedisTestServer) -> Iterator[list[subprocess.Popen[str]]]:
    """What runs in the reader's terminals: the two workers, then the master."""
    [program] = [step for step in parse(GUIDE) if isinstance(step, File)]
    # A lease that a test can wait for; the page says how.
    short = program.text.replace("[total])", "[total], options=Options(worker_timeout_s=3))")
    text = short.replace("import Pipeline,", "import Options, Pipeline,")
    (tmp_path / program.name).write_text(text, encoding="utf-8")
    [block] = re.findall(r"^```sh\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    server, *lines = block.splitlines()
    assert server == "redis-server"
    started = []
    for line in lines:
        towline, *arguments = shlex.split(line.replace("redis://127.0.0.1:6379", redis.url))
        assert towline == "towline"
        started.append(start(tmp_path, *arguments))
    yield started
    for process in started:
        process.kill()
        process.communicate()


def test_guide_to_several_machines_does_what_it_says(
    terminals: list[subprocess.Popen[str]], redis: RedisTestServer
) -> None:
    """Two workers and a master share the work; one is killed in the middle, and the total is there."""
    killed, worker, master = terminals
    seen = []
    assert master.stdout is not None
    deadline = time.monotonic() + LIMIT_S
    for line in master.stdout:  # ends with the master; its own limit is the test's
        seen.append(line)
        if len([one for one in seen if re.search(r"square\[.*succeeded", one)]) == 3 and killed.poll() is None:
            killed.send_signal(signal.SIGKILL)
            killed.wait()
        assert time.monotonic() < deadline
    said = "".join(seen)
    assert master.wait(LIMIT_S) == 0, said
    assert "the total is 650" in said
    assert killed.returncode == -signal.SIGKILL
    assert worker.wait(LIMIT_S) == 0
