"""The address of a server that cannot be used: refused in one line, without a word of its password."""

from __future__ import annotations

import pytest

from cli.shell import SMALL, Shell
from towline.access.redis_server import RedisServer
from towline.errors.configuration import ConfigurationError
from towline.testing import clause
from towline.testing.redis_server import RedisTestServer

SECRET = "hunter2pw"
CUT_PASSWORDS = (f"redis://:{SECRET}/xyz@127.0.0.1:6379", f"redis://:{SECRET}#xyz@127.0.0.1:6379")
MALFORMED = (
    *CUT_PASSWORDS,
    f"redis://ada:12?{SECRET}@127.0.0.1:6379",
    f"redis://:{SECRET}",
    "redis://h:notaport",
    "redis://h:99999",
    "redis://h:0",
    "redis://127.0.0.1:1/abc",
    "redis://127.0.0.1:1#1",
    "redis://[::1",
)


@clause("COORD-R25")
@pytest.mark.parametrize("url", MALFORMED)
def test_a_malformed_address_is_a_mistake_of_the_call(url: str) -> None:
    """It stands in CI variables: the log of the job that refuses it is read by many."""
    with pytest.raises(ConfigurationError) as refused:
        RedisServer(url)

    assert SECRET not in str(refused.value)
    assert "xyz" not in str(refused.value)
    assert refused.value.__cause__ is None
    assert "TOWLINE_REDIS_PASSWORD" in str(refused.value)


@pytest.mark.parametrize("url", ["redis://h", "redis://h:1/", "redis://[::1]:7/3", "redis+unix:///run/a@b.sock"])
def test_well_formed_addresses_are_taken(url: str) -> None:
    """What is optional may be left out."""
    assert RedisServer(url).shown.startswith("redis")


def test_a_password_may_have_any_character(monkeypatch: pytest.MonkeyPatch) -> None:
    """Written as the refusal of a cut one says."""
    monkeypatch.delenv("TOWLINE_REDIS_PASSWORD", raising=False)
    server = RedisServer("redis://ada%40x:a%2Fb%23c%40d@h:1")

    options = server.connection_options()
    assert (options["username"], options["password"]) == ("ada@x", "a/b#c@d")
    assert server.masked("wrong: a/b#c@d") == "wrong: ***"


def refused_in_a_line(shell: Shell, *arguments: str, **environ: str) -> str:
    refused = shell.run(*arguments, code=2, **environ)
    [line] = [line for line in refused.err.splitlines() if not line.startswith("worker for ")]
    assert SECRET not in refused.err
    return line


@clause("CLI-06", "COORD-R25")
@pytest.mark.parametrize("url", [CUT_PASSWORDS[0], "redis://127.0.0.1:1/abc"])
def test_every_command_refuses_a_malformed_address(shell: Shell, url: str) -> None:
    """As a flag and as a variable, of a coordinator and of a state."""
    shell.write("small.py", SMALL)

    for arguments in (
        ("run", "small.py", "--coordinator", url, "--run-id", "a7"),
        ("worker", "small.py", "--coordinator", url, "--run-id", "a7"),
        ("worker", "small.py", "--coordinator", url),
        ("run", "small.py", "--state", url),
        ("plan", "small.py", "--state", url, "--resume"),
        ("artifacts", "latest", "--state", url),
        ("why", "read", "--state", url),
    ):
        assert "127.0.0.1" in refused_in_a_line(shell, *arguments)
    for command in ("run", "worker"):
        refused_in_a_line(shell, command, "small.py", "--run-id", "a7", TOWLINE_COORDINATOR=url)
    doctor = shell.call("doctor", TOWLINE_COORDINATOR=CUT_PASSWORDS[1])
    assert doctor.code == 1
    assert SECRET not in doctor.out + doctor.err
    assert "problem: coordinator" in doctor.out


@clause("COORD-R25")
@pytest.mark.parametrize("file", ["nonexistent", "."])
def test_a_password_file_that_cannot_be_read_is_named(shell: Shell, file: str) -> None:
    """A mount that is missing: the variable and the path say where to look."""
    shell.write("small.py", SMALL)

    for command in ("run", "worker"):
        told = refused_in_a_line(
            shell,
            command,
            "small.py",
            "--coordinator",
            "redis://127.0.0.1:1",
            "--run-id",
            "a7",
            TOWLINE_REDIS_PASSWORD_FILE=file,
        )
        assert "TOWLINE_REDIS_PASSWORD_FILE" in told
        assert file in told


@clause("COORD-R21", "COORD-R25")
def test_a_wrong_password_is_not_tried_for_half_a_minute(shell: Shell) -> None:
    """It will be wrong the next time, too; where another one may come from is said."""
    shell.write("small.py", SMALL)
    with RedisTestServer(options={"requirepass": SECRET}) as server:
        for given in ({}, {"TOWLINE_REDIS_PASSWORD": "another"}):
            for flag in ("--coordinator", "--state"):
                told = refused_in_a_line(shell, "run", "small.py", flag, server.url, "--run-id", "a7", **given)
                assert "TOWLINE_REDIS_PASSWORD" in told
                assert "another" not in told
            told = refused_in_a_line(shell, "worker", "small.py", "--coordinator", server.url, **given)
            assert "TOWLINE_REDIS_PASSWORD" in told
