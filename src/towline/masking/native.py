"""The mask commands of CI systems: the log viewer hides the value too (SEC-08). Pure."""

from __future__ import annotations

from typing import Literal


def native_mask_commands(value: str, system: Literal["github", "azure"]) -> list[str]:
    """Return the lines that make a CI system mask a value; write them raw, before any other output.

    GitHub masks line by line, so a value of several lines needs a command for each.
    """
    if system == "azure":
        return [f"##vso[task.setsecret]{_escaped(value, azure=True)}"]
    lines = [line for line in dict.fromkeys([value, *value.splitlines()]) if line.strip()]
    return [f"::add-mask::{_escaped(line)}" for line in lines]


def _escaped(value: str, *, azure: bool = False) -> str:
    percent = "%AZP25" if azure else "%25"
    return value.replace("%", percent).replace("\r", "%0D").replace("\n", "%0A")
