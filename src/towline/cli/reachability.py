"""Whether the servers that a run would use can be reached from here (CLI-10)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LIMIT_S: Final = 5.0
"""For each server (CLI-10)."""

PORTS: Final = {
    "redis": 6379,
    "rediss": 6379,
    "postgres": 5432,
    "postgresql": 5432,
    "http": 80,
    "https": 443,
    "ws": 80,
    "wss": 443,
}
_USER_INFO = re.compile(r"(?<=://)\S*@")
"""Up to the last @: a password with a slash in it is one too, though no URL."""


def without_password(text: str) -> str:
    """Return a text with user and password of every URL in it hidden."""
    return _USER_INFO.sub("***@", text)


def servers_of(named: Mapping[str, str | None]) -> dict[str, tuple[str, int]]:
    """Return host and port by setting, of those whose value is the URL of a server."""
    found = {}
    for setting, url in named.items():
        try:
            parts = urlsplit(url or "")
            port = parts.port
        except ValueError:
            continue  # told by malformed()
        if parts.scheme in PORTS and parts.hostname:
            found[setting] = (parts.hostname, port or PORTS[parts.scheme])
    return found


def malformed(named: Mapping[str, str | None]) -> list[str]:
    """Return a sentence for each setting whose URL has no host and port that can be read; without its user part."""
    told = []
    for setting, url in named.items():
        try:
            _ = urlsplit(url or "").port
        except ValueError:
            told.append(f"{setting}: {without_password(url or '')} is no URL of a host and a port")
    return told


async def unreachable(servers: Mapping[str, tuple[str, int]], limit_s: float = LIMIT_S) -> list[str]:
    """Try to connect to each, all at once; returns a sentence for each that does not answer in time."""
    import asyncio

    answers: Iterable[str | None] = await asyncio.gather(
        *(_trouble(setting, host, port, limit_s) for setting, (host, port) in servers.items())
    )
    return [answer for answer in answers if answer]


async def _trouble(setting: str, host: str, port: int, limit_s: float) -> str | None:
    import asyncio

    try:
        async with asyncio.timeout(limit_s):
            _, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return f"{setting}: {host}:{port} did not answer within {limit_s:g} s"
    except OSError as error:
        return f"{setting}: {host}:{port} cannot be reached: {error.strerror or error}"
    writer.close()
    return None
