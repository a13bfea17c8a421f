"""Which value of a setting wins, and how values are written. Pure, but for one look through the program."""

from __future__ import annotations

import socket
from pathlib import Path, PureWindowsPath

import pytest

from cli.shell import Shell
from towline.cli.reachability import servers_of, unreachable, without_password
from towline.cli.settings import SETTINGS, choose, options_of, project_table, seconds, truth, unknown_variables
from towline.errors.configuration import ConfigurationError
from towline.execution.options import Options
from towline.testing import clause


def chosen(
    flags: dict[str, object], environ: dict[str, str], table: dict[str, object], code: Options
) -> dict[str, tuple[object, str]]:
    """Every setting with its value and source."""
    return {one.setting.name: (one.value, one.source) for one in choose(flags, environ, table, "pyproject.toml", code)}


@clause("CLI-08")
def test_flag_then_variable_then_table_then_code_then_default() -> None:
    """An operator overrides without an edit, a repository without touching the program."""
    code = Options(parallelism=5)
    layers = [
        ({"parallel": 1}, {"TOWLINE_PARALLEL": "2"}, {"parallel": 3}, (1, "flag --parallel")),
        ({}, {"TOWLINE_PARALLEL": "2"}, {"parallel": 3}, (2, "variable TOWLINE_PARALLEL")),
        ({}, {}, {"parallel": 3}, (3, "pyproject.toml")),
        ({}, {}, {}, (5, "Options in code")),
    ]
    for flags, environ, table, expected in layers:
        assert chosen(flags, environ, table, code)["parallel"] == expected
    assert chosen({}, {}, {}, Options())["parallel"] == (None, "default")


@clause("CLI-09", "CLI-12")
@pytest.mark.parametrize(
    ("flags", "environ", "table", "named"),
    [
        ({}, {"TOWLINE_WORKERS": "-2"}, {}, "TOWLINE_WORKERS is -2 (the environment)"),
        ({}, {"TOWLINE_SCHEDULE": "eagr"}, {}, "TOWLINE_SCHEDULE is"),
        ({"parallel": -2}, {}, {}, "parallel is -2 (flag --parallel)"),
        ({}, {}, {"max-tasks": -2}, "max-tasks is -2 (pyproject.toml)"),
    ],
)
def test_a_value_out_of_bounds_is_named_as_it_was_given(
    flags: dict[str, object], environ: dict[str, str], table: dict[str, object], named: str
) -> None:
    """Who set a variable in a CI job looks for that variable, not for an argument of a class."""
    code = Options()
    with pytest.raises(ConfigurationError) as refused:
        options_of(choose(flags, environ, table, "pyproject.toml", code), code)
    assert named in str(refused.value)


@clause("CLI-08")
def test_an_empty_variable_counts_as_unset() -> None:
    """CI systems set variables to nothing when a matrix has no value for them."""
    assert chosen({}, {"TOWLINE_PARALLEL": ""}, {}, Options())["parallel"] == (None, "default")


@clause("CLI-09")
@pytest.mark.parametrize(
    ("text", "value"),
    [("90", 90), ("90s", 90), ("5m", 300), ("1h30m", 5400), ("2h", 7200), ("1h1m1s", 3661), ("0.5", 0.5), ("0", 0)],
)
def test_durations_are_written_as_people_write_them(text: str, value: float) -> None:
    """ "5m" is not 5 milliseconds."""
    assert seconds(text) == value


@clause("CLI-09")
@pytest.mark.parametrize("text", ["", "soon", "5x", "-5", "m", "1h 30m", "5m5h", "nan", "inf", "1e3"])
def test_other_durations_are_refused(text: str) -> None:
    """A wrong guess here is a timeout that never comes."""
    with pytest.raises(ValueError, match="a duration like"):
        seconds(text)


@clause("CLI-09")
def test_booleans_are_eight_words() -> None:
    """``TOWLINE_KEEP_GOING=no`` must not mean yes."""
    assert [truth(word) for word in ("1", "true", "YES", "On")] == [True] * 4
    assert [truth(word) for word in ("0", "false", "NO", "Off")] == [False] * 4
    with pytest.raises(ValueError, match="1, 0, true"):
        truth("maybe")


@clause("CLI-09")
@pytest.mark.parametrize(
    ("environ", "table", "text"),
    [
        ({"TOWLINE_PARALLEL": "many"}, {}, "TOWLINE_PARALLEL is many .*a whole number"),
        ({"TOWLINE_KEEP_GOING": "maybe"}, {}, "TOWLINE_KEEP_GOING is maybe"),
        ({}, {"paralel": 3}, "paralel.*'parallel'"),
        ({}, {"parallel": True}, "parallel is True .*a whole number"),
        ({}, {"parallel": 1.5}, "parallel is 1.5 .*a whole number"),
        ({}, {"keep-going": 1}, "keep-going is 1 .*true or false"),
        ({}, {"keep-going": "maybe"}, "keep-going is maybe"),
        ({}, {"module-timeout": [1]}, "a duration"),
        ({}, {"state": 5}, "state is 5 .*a text"),
    ],
)
def test_a_value_that_cannot_be_read_is_refused_with_its_place(
    environ: dict[str, str], table: dict[str, object], text: str
) -> None:
    """Whoever set it must find it: in which variable, or in which file."""
    with pytest.raises(ConfigurationError, match=text):
        choose({}, environ, table, "pyproject.toml", Options())


@clause("CLI-09")
def test_unknown_variables_are_warned_of_with_the_nearest_name() -> None:
    """A misspelt variable in a CI file changes nothing, silently, for months."""
    [warning] = unknown_variables({"TOWLINE_PARALEL": "2", "TOWLINE_PARALLEL": "2", "TOWLINE_PARAM_X": "1", "PATH": ""})

    assert "TOWLINE_PARALEL" in warning
    assert "'TOWLINE_PARALLEL'" in warning


@clause("CLI-09")
def test_each_setting_has_the_variable_of_its_flag() -> None:
    """Known one, known all."""
    assert {setting.name: setting.variable for setting in SETTINGS}["module-timeout"] == "TOWLINE_MODULE_TIMEOUT"
    assert all(hasattr(Options(), setting.field) for setting in SETTINGS)


@clause("CLI-08")
def test_the_nearest_pyproject_at_or_above_the_target_counts(tmp_path: Path) -> None:
    """A pipeline in a subfolder of a repository has the repository's settings, or its own."""
    (tmp_path / "pyproject.toml").write_text("[tool.towline]\nparallel = 2\n")
    (tmp_path / "deep/er").mkdir(parents=True)
    assert project_table(tmp_path / "deep/er") == ({"parallel": 2}, f"{tmp_path / 'pyproject.toml'} [tool.towline]")

    (tmp_path / "deep/pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert project_table(tmp_path / "deep/er")[0] == {}

    (tmp_path / "deep/er/pyproject.toml").write_text("[tool")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        project_table(tmp_path / "deep/er")


@clause("CLI-01")
@pytest.mark.parametrize(
    ("text", "file", "attribute"),
    [
        (r"C:\ci\build.py", r"C:\ci\build.py", None),
        (r"C:\ci\build.py:nightly", r"C:\ci\build.py", "nightly"),
        (r"\\server\ci\build.py:nightly", r"\\server\ci\build.py", "nightly"),
        ("/ci/build.py:nightly", "/ci/build.py", "nightly"),
        ("/ci/odd:name/build.py", "/ci/odd:name/build.py", None),
    ],
)
def test_a_target_is_split_at_a_colon_only_before_a_name(text: str, file: str, attribute: str | None) -> None:
    """The colon of a Windows drive is no attribute."""
    from towline.modules.target import parse_target

    target = parse_target(text)

    assert target.path_or_name.endswith(PureWindowsPath(file).name if "\\" in file else file)
    assert target.attribute == attribute


@clause("CLI-10")
def test_doctor_shows_every_setting_with_its_source_and_no_secret(small: Shell) -> None:
    """ "Why does it run with 3?" is answered by one command that can be pasted into a ticket."""
    small.write("pyproject.toml", "[tool.towline]\nkeep-going = true\n")
    environ = {"TOWLINE_PARALLEL": "3", "TOWLINE_TOKEN": "hush-hush", "TOWLINE_PARALEL": "4"}

    shown = small.run("doctor", "small.py", code=1, **environ)
    data = small.run("doctor", "small.py", "--json", code=1, **environ).json()
    fine = small.run("doctor")

    settings = {one["name"]: (one["value"], one["source"]) for one in data["settings"]}
    assert settings["parallel"] == (3, "variable TOWLINE_PARALLEL")
    assert settings["keep-going"] == (True, f"{small.folder / 'pyproject.toml'} [tool.towline]")
    assert settings["schedule"] == ("eager", "default")
    assert data["variables"]["TOWLINE_TOKEN"] == "is set"
    assert "hush-hush" not in shown.out + shown.err
    assert "'TOWLINE_PARALLEL'" in data["problems"][0]
    assert {one["name"] for one in data["installed"]} >= {"msgspec", "click", "redis", "numpy"}
    assert "no problems found" in fine.out


@clause("CLI-09")
def test_settings_reach_the_run(small: Shell) -> None:
    """End to end: a wrong table stops the run, a variable that nothing reads is said and nothing more."""
    small.write("pyproject.toml", "[tool.towline]\nparalel = 2\n")
    refused = small.run("run", "small.py", code=2)
    assert "'parallel'" in refused.err
    small.said()

    small.write("pyproject.toml", "[tool.towline]\nstate = 'kept/here'\n")
    ran = small.run("run", "small.py", TOWLINE_KEEPGOING="1")
    assert "warning: the variable TOWLINE_KEEPGOING is not known and changes nothing" in ran.err
    assert (small.folder / "kept/here/plan.json").exists()


@clause("CLI-09")
def test_every_flag_of_a_run_has_its_variable(small: Shell) -> None:
    """A CI file sets variables; it should not have to change the call."""
    small.run("run", "small.py", TOWLINE_PLAIN="yes", TOWLINE_MODULE="read,lint", TOWLINE_REPORT="out.json")
    assert sorted((small.folder / "said.txt").read_text().splitlines()) == ["lint", "read"]
    assert (small.folder / "out.json").exists()

    resumed = small.run("run", "small.py", TOWLINE_RESUME="1", TOWLINE_JSON="true")
    assert resumed.events()[0]["data"]["resumed_from"]

    wrong = small.run("run", "small.py", code=2, TOWLINE_PLAIN="maybe")
    assert "maybe" in wrong.err
    both = small.run("run", "small.py", "--fresh", code=2, TOWLINE_RESUME="1")
    assert "--resume and --fresh" in both.err


@clause("CLI-10")
def test_doctor_says_what_cannot_be_reached_and_hides_passwords(small: Shell) -> None:
    """A wrong host is found before the night run; the output can be pasted into a ticket."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        open_port = server.getsockname()[1]
        fine = small.run("doctor", TOWLINE_COORDINATOR=f"redis://me:hush-hush@127.0.0.1:{open_port}/0")
    closed = small.run(
        "doctor", code=1, TOWLINE_STATE=f"redis://:hush-hush@127.0.0.1:{open_port}/0", TOWLINE_PARAM_X="hush-hush"
    )

    assert f"coordinator        127.0.0.1:{open_port}" in fine.out
    assert "no problems found" in fine.out
    assert f"problem: state: 127.0.0.1:{open_port} cannot be reached" in closed.out
    assert "hush-hush" not in fine.out + fine.err + closed.out + closed.err


@clause("CLI-10")
def test_which_settings_name_servers() -> None:
    """A folder is none; a URL without a port has that of its kind."""
    named = {"state": ".towline/x", "coordinator": "redis://box", "control": "https://box:8443/x", "other": None}

    assert servers_of(named) == {"coordinator": ("box", 6379), "control": ("box", 8443)}
    assert without_password("at redis://u:p@box/0, not a@b") == "at redis://***@box/0, not a@b"


async def _silent(limit_s: float) -> list[str]:
    return await unreachable({"coordinator": ("192.0.2.1", 9)}, limit_s)


@clause("CLI-10")
def test_a_silent_server_does_not_hold_the_doctor_up() -> None:
    """Five seconds for each at most, all of them at once; here less, so that the test is short."""
    import asyncio

    [sentence] = asyncio.run(_silent(0.05))

    assert sentence.startswith("coordinator: 192.0.2.1:9 ")
