"""TLS contexts for both sides of a link. ``ssl`` is imported here alone, on use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from towline.errors.configuration import ConfigurationError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable


def server_context(
    cert: str, key: str | None, *, client_ca: str | None = None, require_client_cert: bool = False
) -> ssl.SSLContext:
    """Make the listening side: TLS 1.2 or later, with client certificates where they are required.

    Raises:
        ConfigurationError: A file cannot be read or is no certificate, or client certificates are required without a CA.
    """
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load(lambda: context.load_cert_chain(cert, key), "tls_cert", cert)
    if client_ca is not None:
        _load(lambda: context.load_verify_locations(client_ca), "tls_ca", client_ca)
        context.verify_mode = ssl.CERT_REQUIRED if require_client_cert else ssl.CERT_OPTIONAL
    elif require_client_cert:
        raise ConfigurationError("require_client_cert", "true", "given", "name the CA that signs them with tls_ca")
    return context


def client_context(ca: str | None, cert: str | None = None, key: str | None = None) -> ssl.SSLContext:
    """Make the dialling side: the server's name and certificate are always checked, against ``ca`` or the system's.

    Raises:
        ConfigurationError: A file cannot be read or is no certificate.
    """
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca is None:
        context.load_default_certs()
    else:
        _load(lambda: context.load_verify_locations(ca), "tls_ca", ca)
    if cert is not None:
        _load(lambda: context.load_cert_chain(cert, key), "tls_cert", cert)
    return context


def _load(load: Callable[[], object], setting: str, path: str) -> None:
    try:
        load()
    except OSError as error:  # ssl.SSLError is one
        problem = error.strerror or str(error)
        raise ConfigurationError(setting, path, "given", f"name a readable PEM file ({problem})") from error
