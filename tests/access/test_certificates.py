"""TLS contexts check the other side, and say which file is wrong."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trustme

from towline.access import client_context, server_context
from towline.errors import ConfigurationError


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    leaf = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    leaf.private_key_pem.write_to_path(folder / "key.pem")
    leaf.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    return {name: str(folder / f"{name}.pem") for name in ("ca", "key", "cert")}


def test_a_client_always_checks_the_server(files: dict[str, str]) -> None:
    """Encryption to an impostor protects nothing."""
    context = client_context(files["ca"])

    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2


def test_client_certificates_can_be_required(files: dict[str, str]) -> None:
    """With a CA the server may accept only those whom it signed; without one that setting is refused."""
    required = server_context(files["cert"], files["key"], client_ca=files["ca"], require_client_cert=True)

    assert required.verify_mode is ssl.CERT_REQUIRED
    with pytest.raises(ConfigurationError, match="tls_ca"):
        server_context(files["cert"], files["key"], require_client_cert=True)


def test_an_unusable_file_is_named(tmp_path: Path, files: dict[str, str]) -> None:
    """Missing and malformed files are told apart from each other only by their reason, both by name."""
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("no certificate")

    for path in (str(tmp_path / "absent.pem"), str(garbage)):
        with pytest.raises(ConfigurationError, match=Path(path).name):
            server_context(path, files["key"])
        with pytest.raises(ConfigurationError, match=Path(path).name):
            client_context(path)
