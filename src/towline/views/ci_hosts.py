"""What the log viewers of CI systems read in a line: fold markers, commands, mask commands (REP-11, SEC-08). Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

CiHost: TypeAlias = Literal["github", "gitlab", "azure", "teamcity", "buildkite", "travis", "other"]

VARIABLES: dict[str, CiHost] = {
    "GITHUB_ACTIONS": "github",
    "GITLAB_CI": "gitlab",
    "TF_BUILD": "azure",
    "TEAMCITY_VERSION": "teamcity",
    "BUILDKITE": "buildkite",
    "TRAVIS": "travis",
    "CI": "other",
}
"""The variable by which each host is known, the general one last."""

_ERASE = "\x1b[0K"
_COMMANDS: dict[CiHost, re.Pattern[str]] = {
    # GitHub reads `::` at the start of a line, but its older form and those of Azure and TeamCity anywhere.
    "github": re.compile(r"^\s*:(?=:)|#(?=#\[)"),
    "azure": re.compile(r"#(?=#(?:vso)?\[)"),
    "teamcity": re.compile(r"#(?=#teamcity\[)"),
    "gitlab": re.compile(r"section_(?:start|end)(?=:)"),
    "buildkite": re.compile(r"^(?=(?:---|\+\+\+|~~~|\^\^\^)(?:\s|$))"),
    "travis": re.compile(r"travis_(?:fold|time)(?=:)"),
}
_TEAMCITY_ESCAPES = str.maketrans({"|": "||", "'": "|'", "[": "|[", "]": "|]", "\n": "|n", "\r": "|r"})


def host_of(environ: Mapping[str, str]) -> CiHost | None:
    """Recognise the CI system by its variable; ``None`` on somebody's machine."""
    for variable, host in VARIABLES.items():
        if environ.get(variable, "").casefold() not in ("", "0", "false", "no"):
            return host
    return None


def opening(host: CiHost, title: str, number: int, now_s: int) -> str:
    """Return the raw line that begins a folded group.

    Args:
        title: One harmless line.
        number: Unlike that of any other group of this log.
        now_s: Wall time in whole seconds; GitLab shows the time between begin and end.
    """
    match host:
        case "github":
            return f"::group::{title}"
        case "azure":
            return f"##[group]{title}"
        case "gitlab":
            return f"{_ERASE}section_start:{now_s}:towline_{number}[collapsed=true]\r{_ERASE}{title}"
        case "teamcity":
            return f"##teamcity[blockOpened name='{title.translate(_TEAMCITY_ESCAPES)}']"
        case "buildkite":
            return f"--- {title}"
        case "travis":
            return f"travis_fold:start:towline_{number}\r{_ERASE}{title}"
        case _:
            return f"== {title}"


def closing(host: CiHost, title: str, number: int, now_s: int) -> str | None:
    """Return the raw line that ends a group, for hosts that have one."""
    match host:
        case "github":
            return "::endgroup::"
        case "azure":
            return "##[endgroup]"
        case "gitlab":
            return f"{_ERASE}section_end:{now_s}:towline_{number}\r{_ERASE}"
        case "teamcity":
            return f"##teamcity[blockClosed name='{title.translate(_TEAMCITY_ESCAPES)}']"
        case "travis":
            return f"travis_fold:end:towline_{number}\r{_ERASE}"
        case _:
            return None


def heading(host: CiHost, title: str) -> str:
    """Return the raw line above text that must not be folded; on Buildkite it ends the fold before it."""
    return f"+++ {title}" if host == "buildkite" else f"== {title}"


def defused(host: CiHost | None, line: str) -> str:
    """Break whatever this host would take for a command with a space: a body's text does not steer the job."""
    pattern = _COMMANDS.get(host) if host else None
    if pattern is None:
        return line
    return pattern.sub(lambda found: found.group() + " ", line)


def mask_commands(host: CiHost | None, value: str) -> list[str]:
    """Return the raw lines that make the host's viewer hide a value too; empty where it has no such command."""
    if host not in ("github", "azure"):
        return []
    from towline.masking.native import native_mask_commands

    return native_mask_commands(value, host)
