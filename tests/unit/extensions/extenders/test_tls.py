"""HTTPS to an extender: trusted servers, and the client certificate."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from scheduler.configuration.types import Extender, ExtenderTLS
from scheduler.errors import ConfigurationError
from scheduler.extensions.extender_wire import ExtenderError
from scheduler.extensions.extenders import HttpExtender
from scheduler.kube.certificates import Issued, issue
from scheduler.kube.tls import load_key_pair
from tests.support.extender_server import scripted_extender

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def issued() -> Issued:
    return issue("extender", dns_names=["extender.example.com"], addresses=["127.0.0.1"])


def serving(issued: Issued, *, client_authority: bytes = b"") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_key_pair(context, issued.serving)
    if client_authority:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=client_authority.decode())
    return context


def client_pair() -> tuple[bytes, bytes]:
    """Return the key and the self-signed certificate of a client."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "scheduler")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return private, certificate.public_bytes(Encoding.PEM)


async def ask(context: ssl.SSLContext, **settings: Any) -> bytes:
    async with scripted_extender({"ask": {}}, context=context) as extender:
        asked = HttpExtender(Extender(url_prefix=extender.url, **settings), "extenders[0]")
        try:
            return await asked._ask("ask", b"{}", lambda answer: answer)
        finally:
            await asked.close()


async def test_a_certificate_of_an_unknown_authority_is_not_trusted(issued: Issued) -> None:
    with pytest.raises(ExtenderError, match="certificate is not trusted"):
        await ask(serving(issued))


@pytest.mark.parametrize(
    "settings",
    [{"enable_https": True}, {"tls_config": ExtenderTLS(insecure=True)}],
    ids=["enableHTTPS without an authority", "insecure"],
)
async def test_any_certificate_is_trusted_if_the_configuration_permits_it(
    issued: Issued, settings: dict[str, Any]
) -> None:
    assert await ask(serving(issued), **settings) == b"{}"


@pytest.mark.parametrize("how", ["data", "file"])
async def test_the_given_authority_is_trusted(issued: Issued, how: str, tmp_path: Path) -> None:
    file = tmp_path / "ca.crt"
    file.write_bytes(issued.authority)
    tls = ExtenderTLS(ca_data=issued.authority) if how == "data" else ExtenderTLS(ca_file=str(file))
    assert await ask(serving(issued), enable_https=True, tls_config=tls) == b"{}"


async def test_a_bundle_may_have_comments_in_any_language(issued: Issued) -> None:
    tls = ExtenderTLS(ca_data="# Főtanúsítvány\n".encode() + issued.authority)
    assert await ask(serving(issued), enable_https=True, tls_config=tls) == b"{}"


async def test_a_given_certificate_is_trusted_without_its_authority(issued: Issued) -> None:
    _, begin, rest = issued.serving.partition(b"-----BEGIN CERTIFICATE-----")
    tls = ExtenderTLS(ca_data=begin + rest)  # of another authority
    assert await ask(serving(issued), enable_https=True, tls_config=tls) == b"{}"


async def test_another_authority_is_not_trusted(issued: Issued) -> None:
    tls = ExtenderTLS(ca_data=issue("other", addresses=["127.0.0.1"]).authority)
    with pytest.raises(ExtenderError, match="certificate is not trusted"):
        await ask(serving(issued), enable_https=True, tls_config=tls)


@pytest.mark.parametrize(("name", "believed"), [("extender.example.com", True), ("other.example.com", False)])
async def test_the_server_name_must_be_in_the_certificate(issued: Issued, name: str, believed: bool) -> None:
    tls = ExtenderTLS(ca_data=issued.authority, server_name=name)
    if believed:
        assert await ask(serving(issued), tls_config=tls) == b"{}"
        return
    with pytest.raises(ExtenderError, match="Hostname mismatch"):
        await ask(serving(issued), tls_config=tls)


@pytest.mark.parametrize("how", ["data", "files"])
async def test_a_client_certificate_is_sent(issued: Issued, how: str, tmp_path: Path) -> None:
    key, certificate = client_pair()
    given: dict[str, Any] = {"key_data": key, "cert_data": certificate}
    if how == "files":
        (tmp_path / "key").write_bytes(key)
        (tmp_path / "crt").write_bytes(certificate)
        given = {"key_file": str(tmp_path / "key"), "cert_file": str(tmp_path / "crt")}
    context = serving(issued, client_authority=certificate)
    with pytest.raises(ExtenderError):
        await ask(context, tls_config=ExtenderTLS(ca_data=issued.authority))
    assert await ask(context, tls_config=ExtenderTLS(ca_data=issued.authority, **given)) == b"{}"


BROKEN = {
    "an authority that is not there": ExtenderTLS(ca_file="/nowhere/ca.crt"),
    "an authority that is none": ExtenderTLS(ca_data=b"none"),
    "a key that is not there": ExtenderTLS(cert_data=b"x", key_file="/nowhere/key"),
    "a certificate that is none": ExtenderTLS(cert_data=b"none", key_data=b"none"),
}


@pytest.mark.parametrize("tls", BROKEN.values(), ids=BROKEN)
def test_unreadable_certificates_are_errors_of_the_configuration(tls: ExtenderTLS) -> None:
    with pytest.raises(ConfigurationError, match=r"extenders\[0\]\.tlsConfig: cannot be used: "):
        HttpExtender(Extender(url_prefix="https://127.0.0.1", tls_config=tls), "extenders[0]")
