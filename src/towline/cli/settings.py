"""Which value of a setting wins: flag, variable, ``[tool.towline]``, ``Options`` in code, default (CLI-08, CLI-09)."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from towline.errors.configuration import ConfigurationError
from towline.errors.declaration import DeclarationError
from towline.execution.options import Options
from towline.identity import suggestion

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TRUE_WORDS = frozenset({"1", "true", "yes", "on"})
FALSE_WORDS = frozenset({"0", "false", "no", "off"})
_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?\Z")

KNOWN_ELSEWHERE = frozenset(
    {
        "TOWLINE_DEBUG",
        "TOWLINE_TOKEN",
        "TOWLINE_TOKEN_FILE",
        "TOWLINE_READ_TOKEN",
        "TOWLINE_REDIS_PASSWORD",
        "TOWLINE_REDIS_PASSWORD_FILE",
        "TOWLINE_RUN_ID",
        "TOWLINE_INSTANCE",
        "TOWLINE_CAPABILITIES",
        "TOWLINE_CAPABILITY",
        "TOWLINE_CATEGORY",
        "TOWLINE_COORDINATOR",
        "TOWLINE_FRESH",
        "TOWLINE_JSON",
        "TOWLINE_KEEP_FAILED",
        "TOWLINE_MODULE",
        "TOWLINE_PHASE",
        "TOWLINE_PLAIN",
        "TOWLINE_REPORT",
        "TOWLINE_RESUME",
        "TOWLINE_RETRY_FAILED",
        "TOWLINE_SKIP",
        "TOWLINE_WORKER_SECRETS",
        "TOWLINE_WORKER_TOKEN",
    }
)
"""Variables that are no option of a run."""

OPEN_PREFIXES = ("TOWLINE_OFFLOAD_", "TOWLINE_PARAM_", "TOWLINE_SECRET_", "TOWLINE_TEST_")


def truth(text: str) -> bool:
    """Read a boolean of a variable."""
    word = text.strip().casefold()
    if word in TRUE_WORDS:
        return True
    if word in FALSE_WORDS:
        return False
    raise ValueError("1, 0, true, false, yes, no, on or off")


def seconds(text: str) -> float:
    """Read a duration: ``90``, ``90s``, ``5m``, ``1h30m``."""
    match = _DURATION.match(text.strip())
    if not match or not any(match.groups()):
        raise ValueError("a duration like 90, 90s, 5m or 1h30m")
    hours, minutes, rest = (float(part or 0) for part in match.groups())
    return hours * 3600 + minutes * 60 + rest


def whole(text: str) -> int:
    """Read a whole number."""
    try:
        return int(text)
    except ValueError:
        raise ValueError("a whole number") from None


def text_of(text: str) -> str:
    """Take a text as it is."""
    return text


class Setting(msgspec.Struct, frozen=True):
    """One option of a run that an operator can set. ``name``: of the flag, without dashes."""

    name: str
    field: str
    read: Callable[[str], Any]

    @property
    def variable(self) -> str:
        """The environment variable: ``TOWLINE_`` and the flag's name in capitals."""
        return "TOWLINE_" + self.name.upper().replace("-", "_")


SETTINGS = (
    Setting("parallel", "parallelism", whole),
    Setting("workers", "workers", whole),
    Setting("keep-going", "keep_going", truth),
    Setting("schedule", "schedule", text_of),
    Setting("module-timeout", "module_timeout_s", seconds),
    Setting("state", "state", text_of),
    Setting("durability", "durability", text_of),
    Setting("dry-run", "dry_commands", truth),
    Setting("no-cache", "no_cache", truth),
    Setting("strict-values", "strict_values", truth),
    Setting("always-run-budget", "always_run_budget_s", seconds),
    Setting("cancel-grace", "cancel_grace_s", seconds),
    Setting("terminate-grace", "terminate_grace_s", seconds),
    Setting("hook-timeout", "hook_timeout_s", seconds),
    Setting("max-tasks", "max_tasks", whole),
    Setting("max-abandoned", "max_abandoned", whole),
    Setting("secret-in-result", "secret_in_result", text_of),
    Setting("ci-commands", "ci_commands", text_of),
)


class Chosen(msgspec.Struct, frozen=True):
    """A setting's value and where it came from."""

    setting: Setting
    value: Any
    source: str


def choose(
    flags: Mapping[str, Any], environ: Mapping[str, str], table: Mapping[str, Any], table_file: str, code: Options
) -> list[Chosen]:
    """Find the winning value of each setting.

    Raises:
        ConfigurationError: A value cannot be read, or the table has an unknown key; nothing runs (exit 2).
    """
    known = {setting.name for setting in SETTINGS} | {"capabilities"}
    for key in table:
        if key not in known:
            advice = f"no setting of [tool.towline] has this name.{suggestion(key, known)}"
            raise ConfigurationError(key, table[key], table_file, advice)
    defaults = Options()
    chosen = []
    for setting in SETTINGS:
        if flags.get(setting.name) is not None:
            value, source = flags[setting.name], f"flag --{setting.name}"
        elif environ.get(setting.variable):
            value, source = _read(setting, environ[setting.variable], setting.variable), f"variable {setting.variable}"
        elif setting.name in table:
            value, source = _from_table(setting, table[setting.name], table_file), table_file
        else:
            value = getattr(code, setting.field)
            source = "default" if value == getattr(defaults, setting.field) else "Options in code"
        chosen.append(Chosen(setting, value, source))
    return chosen


def options_of(chosen: list[Chosen], code: Options) -> Options:
    """Put winning values over the options in code.

    Raises:
        ConfigurationError: One of them cannot be used; names it as it was given, by flag, variable or table.
        DeclarationError: It is one of the options in code.
    """
    try:
        return msgspec.structs.replace(code, **{one.setting.field: one.value for one in chosen})
    except DeclarationError as error:
        given = next((one for one in chosen if one.setting.field == error.setting), None)
        if given is None or given.source == "Options in code":
            raise
        is_variable = given.source.startswith("variable ")
        name, source = (
            (given.setting.variable, "the environment") if is_variable else (given.setting.name, given.source)
        )
        raise ConfigurationError(name, given.value, source, f"it takes {error.allowed}") from error


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Warn of ``TOWLINE_*`` variables that nothing reads, with the nearest known one."""
    known = {setting.variable for setting in SETTINGS} | KNOWN_ELSEWHERE
    return [
        f"the variable {name} is not known and changes nothing.{suggestion(name, known)}"
        for name in sorted(environ)
        if name.startswith("TOWLINE_") and name not in known and not name.startswith(OPEN_PREFIXES)
    ]


def project_table(start: Path) -> tuple[dict[str, Any], str]:
    """Read ``[tool.towline]`` of the nearest ``pyproject.toml`` at or above a folder.

    Raises:
        ConfigurationError: The file is no TOML.
    """
    for folder in (start, *start.parents):
        file = folder / "pyproject.toml"
        if not file.is_file():
            continue
        try:
            table = tomllib.loads(file.read_text(encoding="utf-8")).get("tool", {}).get("towline", {})
        except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigurationError(
                "[tool.towline]", "not known", str(file), f"the file cannot be read: {error}"
            ) from error
        if not isinstance(table, dict):
            raise ConfigurationError("[tool.towline]", table, str(file), "it takes a table of settings")
        return dict(table), f"{file} [tool.towline]"
    return {}, "pyproject.toml"


def _read(setting: Setting, text: str, source: str) -> Any:
    try:
        return setting.read(text)
    except ValueError as error:
        where = "the environment" if source == setting.variable else source
        raise ConfigurationError(
            source if where == "the environment" else setting.name, text, where, f"it takes {error}"
        ) from None


def _from_table(setting: Setting, value: Any, source: str) -> Any:
    """Take a value of TOML: text is read as that of a variable, else its kind must be the setting's."""
    if isinstance(value, str):
        return _read(setting, value, source)
    read: Any = setting.read
    kinds: dict[Any, tuple[type, ...]] = {truth: (bool,), whole: (int,), seconds: (int, float)}
    if not isinstance(value, kinds.get(read, ())) or (isinstance(value, bool) and read is not truth):
        words: dict[Any, str] = {truth: "true or false", whole: "a whole number", seconds: "a duration"}
        raise ConfigurationError(setting.name, value, source, f"it takes {words.get(read, 'a text')}")
    return value
