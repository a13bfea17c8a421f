"""``towline doctor``: settings with their sources, what is installed, what can be reached (CLI-10)."""

from __future__ import annotations

import asyncio
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from towline.cli.loading import load
from towline.cli.reachability import malformed, servers_of, unreachable, without_password
from towline.cli.results import write_json, write_result
from towline.cli.settings import choose, project_table, unknown_variables
from towline.execution.options import Options, default_parallelism, node_cores

PACKAGES = (
    ("towline", ""),
    ("msgspec", ""),
    ("anyio", ""),
    ("click", ""),
    ("rich", ""),
    ("ahocorasick-rs", ""),
    ("redis", "redis"),
    ("numpy", "offload"),
    ("uvloop", "speed"),
)
SECRET_WORDS = ("TOKEN", "PASSWORD", "SECRET", "KEY", "TOWLINE_PARAM_")
"""Parts of the names of variables whose values are never shown; a parameter may be a secret."""


def examine(target: str | None, *, as_json: bool) -> int:
    """Print each setting, value and source, what is installed, and what is misconfigured; 0 or 1."""
    code, start = Options(), Path.cwd()
    if target is not None:
        program = load(target).program
        code = program.options
        start = Path(program.file).resolve().parent if program.file else start
    table, table_file = project_table(start)
    chosen = choose({}, os.environ, table, table_file, code)
    cores = node_cores()
    settings = [{"name": one.setting.name, "value": _shown(one.value), "source": one.source} for one in chosen]
    installed = [_installed(name, extra) for name, extra in PACKAGES]
    state = next(one.value for one in chosen if one.setting.name == "state")
    coordinator = os.environ.get("TOWLINE_COORDINATOR") or code.coordinator
    named = {"state": state, "coordinator": coordinator, "control": code.control}
    servers = servers_of(named)
    problems = unknown_variables(os.environ) + _unwritable(Path.cwd())
    problems += malformed(named) + asyncio.run(unreachable(servers))
    data: dict[str, Any] = {
        "python": platform.python_version(),
        "system": platform.platform(),
        "cores": cores,
        "parallelism": code.parallelism or default_parallelism(cores),
        "settings": settings,
        "variables": _variables(),
        "servers": {setting: f"{host}:{port}" for setting, (host, port) in servers.items()},
        "installed": installed,
        "problems": problems,
    }
    if as_json:
        write_json(data)
    else:
        write_result(_lines(data))
    return 1 if problems else 0


def _lines(data: dict[str, Any]) -> list[str]:
    lines = [
        f"Python {data['python']} on {data['system']}, {data['cores']} cores, parallelism {data['parallelism']}",
        "",
        "settings",
    ]
    lines += [f"  {one['name']:<18} {one['value']!s:<12} {one['source']}" for one in data["settings"]]
    lines += ["", "variables"] + [f"  {name} {shown}" for name, shown in data["variables"].items()]
    if data["servers"]:
        lines += ["", "servers"] + [f"  {setting:<18} {address}" for setting, address in data["servers"].items()]
    lines += ["", "installed"]
    for one in data["installed"]:
        extra = f"  (extra {one['extra']})" if one["extra"] else ""
        lines.append(f"  {one['name']:<18} {one['version'] or 'not installed'}{extra}")
    lines += (
        ["", *(f"problem: {problem}" for problem in data["problems"])]
        if data["problems"]
        else ["", "no problems found"]
    )
    return lines


def _shown(value: Any) -> Any:
    return without_password(value) if isinstance(value, str) else value


def _installed(name: str, extra: str) -> dict[str, str | None]:
    try:
        return {"name": name, "extra": extra, "version": version(name)}
    except PackageNotFoundError:
        return {"name": name, "extra": extra, "version": None}


def _variables() -> dict[str, str]:
    """Show Towline's variables; of secrets only whether they are set."""
    shown = {}
    for name in sorted(os.environ):
        if name.startswith("TOWLINE_"):
            secret = any(word in name for word in SECRET_WORDS)
            shown[name] = "is set" if secret else f"= {without_password(os.environ[name])}"
    return shown


def _unwritable(folder: Path) -> list[str]:
    return [] if os.access(folder, os.W_OK) else [f"{folder} cannot be written: no state can be kept here"]
