"""Options that are misspelt in the file: the same help as for the settings of a module."""

from __future__ import annotations

import pytest

from cli.shell import Shell
from towline.testing import clause

PROGRAM = """
from towline import Options, Pipeline, SyncContext, module

@module
def a(ctx: SyncContext) -> None: ...

pipeline = Pipeline("spelt", [a], {options})
"""


@clause("MOD-08")
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("options=Options(paralelism=2)", "Options: paralelism=2 cannot be used: there is no such option. Did you mean 'parallelism'?"),
        ("options=Options(colour=2)", "Known: parallelism, keep_going"),
        ("keep_going=True", "spelt: keep_going=True cannot be used: it is an option of the run: options=Options(keep_going=...)."),
        ("phasis=('a',)", "Did you mean 'phases'?"),
    ],
)  # fmt: skip
def test_a_misspelt_option_is_answered_with_the_nearest(shell: Shell, options: str, text: str) -> None:
    """No traceback, and nobody is told to repair an import."""
    shell.write("spelt.py", PROGRAM.format(options=options))
    err = shell.run("run", "spelt.py", code=2).err
    assert text in err
    assert "Traceback" not in err
    assert "Repair the import" not in err


@clause("MOD-08")
def test_all_wrong_settings_of_a_module_are_told_together(shell: Shell) -> None:
    """Three mistakes in one line are one correction."""
    program = PROGRAM.replace("@module\n", "@module(timeout=-1, retires=2, gate='yes')\n").format(options="")
    shell.write("spelt.py", program)
    err = shell.run("check", "spelt.py", code=2).err
    for text in ("timeout=-1 cannot be used", "also retires=2", "'retries'", "also gate='yes': True or False"):
        assert text in err, err
