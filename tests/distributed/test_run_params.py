"""How the parameters of a run reach its workers, and how its secrets do not (DIST-08, SEC-07)."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cli.shell import Shell, ended
from towline import Context, Pipeline, Secret, module
from towline.errors.configuration import RunParamsError
from towline.errors.declaration import DeclarationError
from towline.pipeline.program import secrets_of
from towline.pipeline.run_params import params_of_run, told_params
from towline.testing import clause
from towline.testing.redis_server import RedisTestServer

if TYPE_CHECKING:
    from collections.abc import Mapping


UNSET = Secret("unset")


@dataclass
class Wanted:
    rows: int
    token: Secret = UNSET
    other: Secret | None = None
    folder: Path = Path("here")
    share: Decimal = Decimal("0.1")
    names: list[str] = field(default_factory=list)


@module
async def nothing(ctx: Context) -> None: ...


PROGRAM = Pipeline("p", [nothing], params=Wanted).program


def at_worker(params: Wanted, given: Any = None, environ: Mapping[str, str] | None = None) -> Wanted:
    made: Wanted = params_of_run(PROGRAM, told_params(params), given, environ or {})
    return made


@clause("DIST-08")
def test_a_worker_has_the_parameters_of_the_run() -> None:
    """Values of all kinds, as the master has them; nothing needs to be given twice."""
    params = Wanted(3, folder=Path("there/it"), share=Decimal("0.30"), names=["a"])

    made = at_worker(params)

    assert (made.rows, made.folder, made.share, made.names) == (3, Path("there/it"), Decimal("0.30"), ["a"])
    assert made.token.reveal() == "unset"
    assert at_worker(params, {"rows": 3}).rows == 3
    with pytest.raises(DeclarationError, match="the run's"):
        at_worker(params, {"rows": 4})


@clause("SEC-07", "DIST-08")
def test_a_secret_is_never_told_and_each_worker_has_its_own() -> None:
    """It is in no message; a worker without it is refused at once, and does not go on with the default."""
    params = Wanted(3, token=Secret("hunter2222"), other=Secret("swordfish"))
    assert b"hunter2222" not in bytes(told_params(params))
    assert b"swordfish" not in bytes(told_params(params))

    made = at_worker(params, environ={"TOWLINE_PARAM_TOKEN": "own-token", "TOWLINE_PARAM_OTHER": "own-other"})
    assert made.other is not None
    assert (made.token.reveal(), made.other.reveal()) == ("own-token", "own-other")
    assert at_worker(params, {"token": Secret("x"), "other": Secret("y")}).token.reveal() == "x"
    with pytest.raises(RunParamsError) as refused:
        at_worker(params, environ={"TOWLINE_PARAM_TOKEN": "own-token"})
    assert "set TOWLINE_PARAM_OTHER here too" in str(refused.value)
    assert "TOKEN" not in str(refused.value)


@clause("SEC-06", "MOD-23")
def test_an_empty_secret_is_not_masked() -> None:
    """It stands between any two characters; as a default it means that there is none yet."""
    assert secrets_of(Wanted(1, token=Secret(""))) == []
    assert len(secrets_of(Wanted(1))) == 1


SHOP = """
from dataclasses import dataclass
from pathlib import Path
from towline import Pipeline, Secret, SyncContext, module

@dataclass
class Wanted:
    rows: int
    token: Secret = Secret("")

@module(requires="till")
def sell(ctx: SyncContext) -> None:
    params = ctx.params(Wanted)
    Path("sold.txt").write_text(f"{params.rows} {params.token.reveal()}")
    print("the token is", params.token.reveal())

pipeline = Pipeline("shop", [sell], params=Wanted)
if __name__ == "__main__":
    pipeline.main()
"""


@pytest.fixture
def machines(tmp_path: Path) -> tuple[Shell, Shell]:
    made = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        made.append(Shell(tmp_path / name))
        made[-1].write("shop.py", SHOP)
    return made[0], made[1]


@clause("SEC-07", "DIST-08")
def test_a_run_over_redis_with_a_secret(machines: tuple[Shell, Shell]) -> None:
    """Two machines and a server: the other parameters come from the master, the token from the worker's variable."""
    one, two = machines
    with RedisTestServer() as server:
        where = ("--coordinator", server.url, "--run-id", "r1")
        worker = two.start("worker", "shop.py", *where, "--capability", "till", TOWLINE_PARAM_TOKEN="hunter2222")
        master = one.call("run", "shop.py", *where, "--param", "rows=3", TOWLINE_PARAM_TOKEN="hunter2222")
        end = ended(worker)

    assert master.code == 0, master.err
    assert end.code == 0, end.err
    assert (two.folder / "sold.txt").read_text() == "3 hunter2222"
    assert "the token is ***" in master.out + master.err
    assert "hunter2222" not in master.out + master.err + end.out + end.err


@clause("SEC-07")
def test_a_worker_that_lacks_the_secret_of_the_run_is_refused(machines: tuple[Shell, Shell]) -> None:
    """Exit 2 and the variable to set; the run is for a worker that has it."""
    one, two = machines
    with RedisTestServer() as server:
        where = ("--coordinator", server.url, "--run-id", "r1")
        master = one.start("run", "shop.py", *where, "--param", "rows=3", TOWLINE_PARAM_TOKEN="hunter2222")
        refused = two.call("worker", "shop.py", *where, "--capability", "till")
        served = two.call("worker", "shop.py", *where, "--capability", "till", TOWLINE_PARAM_TOKEN="hunter2222")
        end = ended(master)

    assert refused.code == 2
    assert "set TOWLINE_PARAM_TOKEN here too" in refused.err
    assert served.code == 0, served.err
    assert end.code == 0, end.err


def test_an_empty_secret_as_default_runs(machines: tuple[Shell, Shell]) -> None:
    """It used to end every run: an empty value cannot be masked."""
    one, _ = machines
    done = one.call("run", "shop.py", "--param", "rows=1", "--capability", "till")
    assert done.code == 0, done.err
    assert (one.folder / "sold.txt").read_text() == "1 "
