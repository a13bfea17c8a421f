"""Where a listener may listen: this machine freely, beyond it only with a token."""

from __future__ import annotations

import ipaddress

from towline.errors.configuration import ConfigurationError


def parse_address(text: str, setting: str = "address", *, allow_port_zero: bool = True) -> tuple[str, int]:
    """Split ``HOST:PORT`` or ``[V6]:PORT`` into host and port.

    Raises:
        ConfigurationError: No port, a port outside 0 to 65535, or an empty host.
    """
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    number = int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else -1
    if not colon or not host or not (0 if allow_port_zero else 1) <= number <= 65_535:
        raise ConfigurationError(setting, text, "given", "write HOST:PORT, for example 127.0.0.1:5555")
    return host, number


def format_address(host: str, port: int) -> str:
    """Write host and port as ``parse_address`` reads them."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Say whether an address can be reached from this machine alone. Names other than localhost cannot be known."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def check_listener(host: str, token: str | None, *, flag: str, variable: str, setting: str) -> None:
    """Refuse to listen beyond this machine without a token (OFF-801, COORD-H15).

    Raises:
        ConfigurationError: It names the flag, the variable and the setting that would give the token.
    """
    if token or is_loopback(host):
        return
    raise ConfigurationError(
        "token", "none", f"listening on {host}", f"set {flag}, {variable} or {setting}, or listen on 127.0.0.1"
    )
