"""How to reach the server: URL, secret, TLS; and a connection that introduces itself (COORD-R17, R23, R25)."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

from redis.asyncio.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from towline.errors.configuration import ConfigurationError

if TYPE_CHECKING:
    from urllib.parse import SplitResult

    from redis.asyncio.connection import AbstractConnection

COMMAND_TIMEOUT_S = 5.0
_PORT = 6379

PASSWORD_ADVICE = (
    "give the right password in TOWLINE_REDIS_PASSWORD, in the file that TOWLINE_REDIS_PASSWORD_FILE names, or in the "
    "URL, which counts first"
)
"""For a server that refuses the password, or wants one (COORD-R25)."""


class RedisServer:
    """One server by its URL: ``redis://``, ``rediss://`` or ``redis+unix:///path/to/socket``.

    The password comes from the URL, ``TOWLINE_REDIS_PASSWORD`` or the file that ``TOWLINE_REDIS_PASSWORD_FILE`` names.
    ``rediss://`` checks certificates unless the URL says ``?tls_insecure=1``. :attr:`shown` has no secret.

    Raises:
        ConfigurationError: The URL is malformed, or the file cannot be read; the message has nothing of the user part.
    """

    def __init__(self, url: str, *, command_timeout_s: float = COMMAND_TIMEOUT_S) -> None:
        parts = _parts_of(url)
        self._query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        self._scheme = parts.scheme
        self._password = unquote(parts.password or "") or _password_elsewhere()
        self._username = unquote(parts.username or "") or None
        self._path = parts.path if parts.scheme == "redis+unix" else ""
        self.host, self.port = parts.hostname or "localhost", parts.port or _PORT
        self.database = 0 if self._path else int(parts.path.strip("/") or 0)
        self.command_timeout_s = command_timeout_s
        where = self._path or f"{self.host}:{self.port}/{self.database}"
        self.shown = f"{parts.scheme}://{where}"

    def option(self, name: str) -> str | None:
        """Return an option of the URL."""
        return self._query.get(name)

    def masked(self, text: str) -> str:
        """Return a text of the server or client without the password."""
        return text.replace(self._password, "***") if self._password else text

    def at(self, host: str, port: int) -> RedisServer:
        """Return the same access to another node of the cluster."""
        other = RedisServer.__new__(RedisServer)
        other.__dict__.update(self.__dict__)
        other.host, other.port = host, port
        return other

    def connection_class(self) -> type[AbstractConnection]:
        """Return the class of connection that the URL asks for."""
        kinds = {"rediss": SSLConnection, "redis+unix": UnixDomainSocketConnection}
        return kinds.get(self._scheme, Connection)

    def connection_options(self, **more: Any) -> dict[str, Any]:
        """Return options for a connection; every default that a client version might change is set."""
        options: dict[str, Any] = {
            "db": self.database,
            "username": self._username,
            "password": self._password,
            "retry": Retry(NoBackoff(), 0),
            "socket_connect_timeout": self.command_timeout_s,
            "socket_timeout": None,
            "health_check_interval": 0,
            "protocol": 2,
            "decode_responses": False,
        }
        if self._path:
            options["path"] = self._path
        else:
            options |= {"host": self.host, "port": self.port, "socket_keepalive": True}
        if self._scheme == "rediss":
            insecure = self._query.get("tls_insecure") == "1"
            options |= {"ssl_cert_reqs": "none" if insecure else "required", "ssl_check_hostname": not insecure}
            if "ca" in self._query:
                options["ssl_ca_certs"] = self._query["ca"]
        return options | more


def _parts_of(url: str) -> SplitResult:
    """Split a URL whose parts can all be used.

    Raises:
        ConfigurationError: See :class:`RedisServer`.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:  # its text would show what stands where a port should, which may be a password
        raise _malformed(url, "host and port cannot be read from it") from None
    if parts.scheme == "redis+unix":
        return parts
    behind = parts.path + parts.query + parts.fragment
    if "@" in behind or parts.fragment:
        raise _malformed(url, "its user part is cut off")
    if port == 0:
        raise _malformed(url, "port 0 is nobody's")
    database = parts.path.strip("/")
    if database and not (database.isascii() and database.isdigit()):
        raise _malformed(url, f"its database is {database!r}, not a number")
    return parts


def _malformed(url: str, why: str) -> ConfigurationError:
    scheme, _, rest = url.partition("://")
    _, marker, behind = rest.rpartition("@")
    shown = f"***@{behind}" if marker else rest
    if shown.startswith(":") or not shown.isprintable():
        shown = "..."  # a password without its host, or what no line can show
    advice = (
        f"{why}; give redis://HOST:PORT/DATABASE, and the password in TOWLINE_REDIS_PASSWORD, or in the URL with "
        "each of / # ? @ in it written as %2F %23 %3F %40"
    )
    return ConfigurationError("the address of Redis", f"{scheme}://{shown}", "given", advice)


def _password_elsewhere() -> str | None:
    given = os.environ.get("TOWLINE_REDIS_PASSWORD")
    if given:
        return given
    file = os.environ.get("TOWLINE_REDIS_PASSWORD_FILE")
    if not file:
        return None
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise ConfigurationError(
            "TOWLINE_REDIS_PASSWORD_FILE", file, "environment", f"{why}: name a file that can be read"
        ) from error


async def server_id_of(connection: AbstractConnection) -> str:
    """Return the id of the server process; one that hides it counts as restarted each time (COORD-R17)."""
    await connection.send_command("INFO", "server")
    info = await connection.read_response()
    for line in bytes(info).splitlines():
        if line.startswith(b"run_id:"):
            return line[7:].decode().strip()
    return secrets.token_hex(8)
